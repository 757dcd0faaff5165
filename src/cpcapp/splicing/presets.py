"""What a localizer is made of: which patches it learns from and how it reads its filters."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from cpcapp.splicing.channels import CHANNELS
from cpcapp.splicing.patches import WINDOWS

WEIGHTS = ("none", "excess")
SCALINGS = ("background", "unit")


@dataclass(frozen=True)
class PatchRules:
    """Which patches of a training photo are target and background.

    Attributes
    ----------
    least_spliced, most_spliced : float
        Share of pasted pixels in a target patch.
    least_edges : float
        Share of edge pixels in a background patch, which has no seam.
    edge_strength : float
        From this strength on a pixel counts as edge.
    per_photo : int
        Most patches of each kind from one photo.
    """

    least_spliced: float = 0.3
    most_spliced: float = 0.7
    least_edges: float = 0.15
    edge_strength: float = 0.1
    per_photo: int = 300

    def __post_init__(self) -> None:
        if not 0.0 < self.least_spliced < self.most_spliced < 1.0:
            raise ValueError(
                f"least_spliced={self.least_spliced} and most_spliced={self.most_spliced} must "
                "rise between 0 and 1"
            )
        if not (0.0 <= self.least_edges <= 1.0 and 0.0 <= self.edge_strength <= 1.0):
            raise ValueError(
                f"least_edges={self.least_edges} and edge_strength={self.edge_strength} must lie "
                "in [0, 1]"
            )
        if self.per_photo < 1:
            raise ValueError(f"per_photo={self.per_photo} must be at least 1")


@dataclass(frozen=True)
class BankOptions:
    """One set of filters and how its output becomes a map.

    Attributes
    ----------
    channels : {"rgb", "laplacian", "error-level"}
        What patches are cut from.
    size : int
        Side of a patch, the paper's ``n``.
    stride : int
        Distance of neighbouring patches when localizing.
    n_filters : int
        The paper's ``K``.
    scaling : {"background", "unit"}
        Of the filters; see `cpcapp.solve_contrast`.
    weights : {"none", "excess"}
        ``"none"``: the output power ``Σ yᵢ²``, as in the paper. ``"excess"``: ``Σ (1 - 1/λᵢ)yᵢ²``,
        the part of the log-likelihood ratio that these filters see.
    energy : float
        The power is divided by the patch's variance to this power: 0 as in the paper, 1 makes
        it free of contrast.
    window : {"uniform", "gaussian"}
        How overlapping patches are averaged.
    share : float
        Exponent with which this map enters the product of all.
    """

    channels: str = "rgb"
    size: int = 16
    stride: int = 4
    n_filters: int = 150
    scaling: str = "background"
    weights: str = "none"
    energy: float = 0.0
    window: str = "uniform"
    share: float = 1.0

    def __post_init__(self) -> None:
        for name, allowed in (
            ("channels", tuple(CHANNELS)),
            ("weights", WEIGHTS),
            ("window", WINDOWS),
            ("scaling", SCALINGS),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} must be one of {', '.join(allowed)}"
                )
        if not 2 <= self.size <= 64:
            raise ValueError(f"size={self.size} must be from 2 to 64")
        if not 1 <= self.stride <= self.size:
            raise ValueError(f"stride={self.stride} must be from 1 to size={self.size}")
        if not 1 <= self.n_filters <= self.n_features:
            raise ValueError(f"n_filters={self.n_filters} must be from 1 to {self.n_features}")
        if not (0.0 <= self.energy <= 2.0 and 0.0 < self.share <= 10.0):
            raise ValueError(
                f"energy={self.energy} must be in [0, 2], share={self.share} in (0, 10]"
            )

    @property
    def n_features(self) -> int:
        """Length of a flattened patch, the paper's ``M = 3n²``."""
        return 3 * self.size**2


@dataclass(frozen=True)
class Preset:
    """All settings of a localizer.

    Attributes
    ----------
    name : str
    banks : tuple of BankOptions
    smoothing : float
        Standard deviation of the Gaussian that smooths the final map, in pixels; 0 for none.
    sides : bool
        Whether to ask also if both sides of an edge show the same colour mosaic; see
        `cpcapp.splicing.mosaic_trace`.
    rules : PatchRules
    """

    name: str
    banks: tuple[BankOptions, ...]
    smoothing: float = 0.0
    sides: bool = False
    rules: PatchRules = field(default_factory=PatchRules)

    def __post_init__(self) -> None:
        if not self.banks:
            raise ValueError("banks must hold at least one set of filters")
        if not 0.0 <= self.smoothing <= 50.0:
            raise ValueError(f"smoothing={self.smoothing} must be in [0, 50]")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings in types that JSON knows."""
        return asdict(self) | {"banks": [asdict(bank) for bank in self.banks]}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Preset:
        """Return what `to_dict` gave.

        Examples
        --------
        >>> Preset.from_dict(PRESETS["paper"].to_dict()) == PRESETS["paper"]
        True
        """
        return cls(
            name=str(content["name"]),
            banks=tuple(_build(BankOptions, bank) for bank in content["banks"]),
            smoothing=float(content["smoothing"]),
            sides=content["sides"] is True,
            rules=_build(PatchRules, content["rules"]),
        )


def _build(kind: type[Any], content: dict[str, Any]) -> Any:
    """Return a dataclass from a dictionary, each value of the type that its default has."""
    values = {}
    for entry in fields(kind):
        value = content[entry.name]
        expected = type(entry.default)
        if expected is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not expected:
            raise ValueError(f"{entry.name}={value!r} must be of type {expected.__name__}")
        values[entry.name] = value
    return kind(**values)


PRESETS = {
    "paper": Preset("paper", (BankOptions(n_filters=50),)),
    "default": Preset(
        "default",
        (
            BankOptions(
                size=12, n_filters=50, weights="excess", energy=0.75, window="gaussian", share=0.65
            ),
            BankOptions(
                channels="error-level",
                size=12,
                n_filters=100,
                weights="excess",
                energy=0.5,
                window="gaussian",
                share=0.35,
            ),
        ),
        smoothing=2.5,
        sides=True,
    ),
}
