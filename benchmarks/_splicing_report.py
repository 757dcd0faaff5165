"""The figures of the splice localizer as Markdown."""

from __future__ import annotations

from typing import Any

from _report import machine_line, number, table, targets_table

Results = dict[str, Any]

# Tables of the paper: F1 and MCC on all photos of the sets, of which we have a part.
_PUBLISHED = {"Columbia": (0.359, 0.385), "Nimble WEB": (0.376, 0.388)}


def as_markdown(results: Results) -> str:
    parts = [
        "# Finding splices",
        machine_line(results),
        "## Training",
        _training(results["training"]),
        "## Localizing on one core",
        _localizing(results["localizing"]),
        "## Scores: the seam, F1 / MCC",
        _scores(results["scores"]),
        "## Scores on made splices, F1 / MCC",
        _variants(results),
        "## Targets",
        targets_table(results["targets"]),
    ]
    return "\n\n".join(parts) + "\n"


def _training(training: Results) -> str:
    moments = training["moments"]
    low, high = moments["share_of_gemm_quartiles"]
    gemm = number(moments["gemm_patches_per_second"])
    rows = [
        [
            "moments alone, patches in memory",
            number(moments["patches_per_second"]),
            f"{moments['share_of_gemm']:.2f} ({low:.2f} to {high:.2f})",
        ]
    ]
    for kind, label in (
        ("from_files", "photos and masks read from PNG files"),
        ("from_splices", "splices made while training"),
    ):
        found = training[kind]
        rows.append([label, number(found["patches_per_second"]), f"{found['share_of_gemm']:.3f}"])
    whole = training["from_splices"]
    text = (
        f"One float32 product with the operations of a patch's second moments, 2 M² with "
        f"M = {moments['features']}, runs at {moments['gemm_gflops']:.0f} GFlop/s here, which is "
        f"{gemm} patches per second. In the same run, as a share of it for the same operations:\n\n"
        + table(["", "patches per second", "share of that rate"], rows)
        + f"\n\nThe preset `paper` with {whole['patches']:,} patches of {whole['photos']} splices "
        f"trains in {whole['seconds']:.0f} s with {training['jobs']} threads, of which "
        f"{whole['reading_seconds']:.0f} s go into making the splices, finding their edges and "
        "adding up patches; the paper says 1.5 hours. The top 50 eigenvectors of seams and of "
        f"authentic edges overlap by {100 * whole['subspace_overlap'][0]:.1f} % (the paper: "
        "93.25 %)."
    )
    if "filters" in training:
        other = training["filters"]
        text += (
            f" The preset `filters` takes {other['seconds']:.0f} s for {other['patches']:,} "
            "patches of the same splices."
        )
    return text


def _localizing(localizing: Results) -> str:
    rows, large = [], []
    for name, found in localizing.items():
        photo, whole = found["columbia"], found["large"]
        plain = photo["plain"]
        rows += [
            [name, "ours", f"{photo['seconds']:.2f}", "", ""],
            ["", "of which edges", f"{photo['of_which_edges']:.2f}", "", ""],
            [
                "",
                "direct, per patch with NumPy",
                f"{photo['direct_seconds']:.2f}",
                f"{photo['direct_over_ours']:.1f}",
                f"{photo['direct_over_ours_without_edges']:.1f}",
            ],
            [
                "",
                "direct, pixel by pixel as in the tests",
                f"{plain['seconds']:.0f}",
                f"{plain['over_ours']:.0f}",
                f"{plain['over_ours_without_edges']:.0f}",
            ],
        ]
        large.append(
            [
                name,
                f"{whole['seconds']:.1f}",
                f"{whole['processor_seconds']:.1f}",
                f"{whole['peak_bytes'] / 1e6:,.0f} MB",
                f"{whole['peak_bytes_before'] / 1e6:,.0f} MB",
            ]
        )
    first = next(iter(localizing.values()))["columbia"]
    header = ["model", "way", "s", "times ours", "times ours, without edges"]
    found = [one["columbia"] for one in localizing.values()]
    difference = max(one["largest_difference"] for one in found)
    plain = max(one["plain"]["largest_difference"] for one in found)
    return (
        f"A photo of Columbia ({first['megapixels']:.2f} megapixels; medians over "
        f"{first['photos']}), reading included. The direct ways take the paper's steps one patch "
        "at a time, with the edges that ours finds, whose time counts on both sides. Per patch "
        f"with NumPy, the maps differ from ours by at most {difference:.0e}. Pixel by pixel is "
        "the reference of the tests, plain loops over the pixels of each patch (timed on "
        f"a strip of {first['plain']['strip_rows']} rows, times the number of patches in the "
        f"photo over that in the strip; there the maps differ by at most {plain:.0e})."
        f"\n\n{table(header, rows)}\n\nA synthetic photo of 12 megapixels, from an array:\n\n"
        + table(["model", "s", "processor, s", "peak memory", "before the photo"], large)
    )


def _cells(sets: Results, method: str) -> list[str]:
    cells = []
    for found in sets.values():
        score = found["edge"].get(method)
        none = score is None or score["f1"] is None
        cells.append("-" if none else f"{score['f1']:.3f} / {score['mcc']:.3f}")
    return cells


def _table_of(sets: Results, models: dict[str, str]) -> tuple[list[str], list[list[str]]]:
    header = ["", *(f"{name} ({found['photos']})" for name, found in sets.items())]
    methods = list(next(iter(sets.values()))["edge"])
    return header, [[models.get(method, method), *_cells(sets, method)] for method in methods]


def _scores(sets: Results) -> str:
    header, rows = _table_of(sets, {"filters": "filters (shipped)"})
    published = [_PUBLISHED.get(name) for name in sets]
    cells = ["-" if pair is None else "{:.3f} / {:.3f}".format(*pair) for pair in published]
    problems = [text for found in sets.values() for text in found["problems"]]
    note = "".join(f" Left out: {text}." for text in problems)
    return (
        table(header, [*rows, ["published, on the whole set", *cells]])
        + "\n\nProtocol `edge`; in brackets the number of photos, of which the published data sets "
        f"have more. No photo of these sets was trained on.{note}"
    )


def _variants(results: Results) -> str:
    sets = results["variants"]
    header, rows = _table_of(sets, {"filters": "filters (shipped)"})
    seen = results["variants_seen_by"]
    note = (
        "Made with exact masks of BSDS500 val and every fifth photo of UCID, which the models "
        "trained here have not seen."
    )
    if seen:
        note += f" The model {', '.join(seen)} may have, with other splices."
    return f"{table(header, rows)}\n\nProtocol `edge`. {note}"
