"""Presets: all settings of a localizer, as they stand in its model file."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

from cpcapp._io.ranges import check_ranges, ranged
from cpcapp.splicing.decide.options import RegionOptions, VerdictOptions
from cpcapp.splicing.measure.filters import BankOptions
from cpcapp.splicing.measure.mosaic import MosaicOptions


@dataclass(frozen=True)
class PatchRules:
    """Which patches of a training photo are target and background.

    Attributes
    ----------
    min_spliced, max_spliced : float
        Share of pasted pixels in a target patch, as in the paper. The others were set by hand.
    min_edges : float
        Share of edge pixels in a background patch, which has no seam.
    edge_strength : float
        From this strength on a pixel counts as edge.
    per_photo : int
        Most patches of each kind from one photo.
    """

    min_spliced: float = ranged(0.3, 0.0, 1.0)
    max_spliced: float = ranged(0.7, 0.0, 1.0)
    min_edges: float = ranged(0.15, 0.0, 1.0)
    edge_strength: float = ranged(0.1, 0.0, 1.0)
    per_photo: int = ranged(300, 1, 1 << 30)

    def __post_init__(self) -> None:
        check_ranges(self)
        if not 0.0 < self.min_spliced < self.max_spliced < 1.0:
            raise ValueError(
                f"min_spliced={self.min_spliced} and max_spliced={self.max_spliced} must "
                "rise between 0 and 1"
            )


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
        Whether a network measures the seam and traces, in place of filters.
    mosaic : MosaicOptions
    regions : RegionOptions
    verdict : VerdictOptions
    rules : PatchRules
    """

    name: str
    banks: tuple[BankOptions, ...]
    smoothing: float = ranged(0.0, 0.0, 50.0)
    mosaic_contrast: bool = False
    mosaic_offset: float = ranged(0.15, 0.0, 100.0)
    network: bool = False
    mosaic: MosaicOptions = field(default_factory=MosaicOptions)
    regions: RegionOptions = field(default_factory=RegionOptions)
    verdict: VerdictOptions = field(default_factory=VerdictOptions)
    rules: PatchRules = field(default_factory=PatchRules)

    def __post_init__(self) -> None:
        check_ranges(self)
        if bool(self.banks) == self.network:
            raise ValueError("banks must hold at least one set of filters, and none with a network")

    @property
    def min_side(self) -> int:
        """Photos with a shorter side are smaller than a patch."""
        return max((bank.size for bank in self.banks), default=1)

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
        banks = tuple(_build(BankOptions, bank) for bank in content["banks"])
        for bank in content["banks"]:
            if bank.get("scaling", "background") != "background":
                raise ValueError(
                    f"scaling={bank['scaling']!r} is no longer computed; train the model again"
                )
        parts = {
            entry.name: _build(entry.default_factory, content[entry.name])
            for entry in fields(cls)
            if entry.default_factory is not MISSING
        }
        return _build(cls, content | parts | {"name": str(content["name"]), "banks": banks})  # type: ignore[no-any-return]


def _build(kind: Any, content: dict[str, Any]) -> Any:
    """Return a dataclass from a dictionary, each value of the type that its default has."""
    values = {}
    for entry in fields(kind):
        value, expected = content[entry.name], type(entry.default)
        if expected is float and type(value) is int:
            value = float(value)
        if entry.default is not MISSING and type(value) is not expected:
            raise ValueError(f"{entry.name}={value!r} must be of type {expected.__name__}")
        values[entry.name] = value
    return kind(**values)


# Of "paper", size and number of filters were set by hand, see
# benchmarks/results/paper_preset_trials.json. Those of "filters", with weights, exponents and
# smoothing, have the best mean score on made splices and pairs of photos of CASIA 2.0. "default"
# has no filters: beside the network they changed neither seam nor region of made splices.
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
PRESETS["default"] = Preset(
    "default", (), network=True, regions=RegionOptions(prior=0.5, trim_per_pixel=2.0)
)
