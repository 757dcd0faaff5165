"""Presets: all settings of a localizer, as they stand in its model file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from cpcapp.splicing.decide.options import RegionOptions, VerdictOptions
from cpcapp.splicing.measure.boundary import BankOptions
from cpcapp.splicing.measure.mosaic import MosaicOptions


@dataclass(frozen=True)
class PatchRules:
    """Which patches of a training photo are target and background.

    Attributes
    ----------
    min_spliced, max_spliced : float
        Share of pasted pixels in a target patch.
    min_edges : float
        Share of edge pixels in a background patch, which has no seam.
    edge_strength : float
        From this strength on a pixel counts as edge.
    per_photo : int
        Most patches of each kind from one photo.
    """

    min_spliced: float = 0.3
    max_spliced: float = 0.7
    min_edges: float = 0.15
    edge_strength: float = 0.1
    per_photo: int = 300

    def __post_init__(self) -> None:
        if not 0.0 < self.min_spliced < self.max_spliced < 1.0:
            raise ValueError(
                f"min_spliced={self.min_spliced} and max_spliced={self.max_spliced} must "
                "rise between 0 and 1"
            )
        if not (0.0 <= self.min_edges <= 1.0 and 0.0 <= self.edge_strength <= 1.0):
            raise ValueError(
                f"min_edges={self.min_edges} and edge_strength={self.edge_strength} must lie "
                "in [0, 1]"
            )
        if self.per_photo < 1:
            raise ValueError(f"per_photo={self.per_photo} must be at least 1")


@dataclass(frozen=True)
class Preset:
    """All settings of a localizer.

    Attributes
    ----------
    name : str
    banks : tuple of BankOptions
    smoothing : float
        Standard deviation of the Gaussian that smooths the boundary map, in pixels; 0 for none.
    mosaic_contrast : bool
        Whether the boundary map also asks if both sides of an edge show the same colour mosaic,
        and is emphasised along the border of the region.
    mosaic_offset : float
        Added to that contrast: a photo without a mosaic is judged by its filters alone. Set by
        hand.
    network : bool
        Whether a network measures traces beside the filters.
    n_side_filters : int
        How many directions of the learned traces tell two sides apart. Set by hand.
    mosaic : MosaicOptions
    regions : RegionOptions
    verdict : VerdictOptions
    rules : PatchRules
    """

    name: str
    banks: tuple[BankOptions, ...]
    smoothing: float = 0.0
    mosaic_contrast: bool = False
    mosaic_offset: float = 0.15
    network: bool = False
    n_side_filters: int = 6
    mosaic: MosaicOptions = field(default_factory=MosaicOptions)
    regions: RegionOptions = field(default_factory=RegionOptions)
    verdict: VerdictOptions = field(default_factory=VerdictOptions)
    rules: PatchRules = field(default_factory=PatchRules)

    def __post_init__(self) -> None:
        if not self.banks:
            raise ValueError("banks must hold at least one set of filters")
        if not 0.0 <= self.smoothing <= 50.0:
            raise ValueError(f"smoothing={self.smoothing} must be in [0, 50]")
        if not 1 <= self.n_side_filters <= 64:
            raise ValueError(f"n_side_filters={self.n_side_filters} must be from 1 to 64")
        if not 0.0 <= self.mosaic_offset <= 100.0:
            raise ValueError(f"mosaic_offset={self.mosaic_offset} must be in [0, 100]")

    @property
    def min_side(self) -> int:
        """Photos with a shorter side are smaller than a patch."""
        return max(bank.size for bank in self.banks)

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
            mosaic_contrast=content["mosaic_contrast"] is True,
            mosaic_offset=float(content["mosaic_offset"]),
            network=content["network"] is True,
            n_side_filters=int(content["n_side_filters"]),
            mosaic=_build(MosaicOptions, content["mosaic"]),
            regions=_build(RegionOptions, content["regions"]),
            verdict=_build(VerdictOptions, content["verdict"]),
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
    "filters": Preset(
        "filters",
        (
            BankOptions(
                size=12,
                n_filters=50,
                weights="excess",
                variance_exponent=0.75,
                window="gaussian",
                exponent=0.65,
            ),
            BankOptions(
                channels="error-level",
                size=12,
                n_filters=100,
                weights="excess",
                variance_exponent=0.5,
                window="gaussian",
                exponent=0.35,
            ),
        ),
        smoothing=2.5,
        mosaic_contrast=True,
    ),
}
PRESETS["default"] = replace(
    PRESETS["filters"],
    name="default",
    network=True,
    verdict=VerdictOptions(collection_spread=1.2),
)
