"""The figures as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Results = dict[str, Any]

_FIT_ONLY = "CPCAPlusPlus, fit only"
_FLOOR = "floor"


def as_markdown(results: Results) -> str:
    parts = [
        "# Speed and memory of the estimators",
        machine_line(results),
        "## Seconds to fit both sets and reduce the target to two components",
        _seconds(results["shapes"]),
        "## Times as long as CPCAPlusPlus (medians over rounds)",
        _ratios(results["shapes"]),
        "## Fit against the floor",
        "The floor is two `dsyrk` of centred data and LAPACK's `dsygvx` for two eigenpairs.",
        _floor(results),
        "## Fewer samples than features",
        _wide(results["wide"]),
        "## Memory",
        _memory(results["memory"]),
        "## Targets",
        targets_table(results["targets"]),
    ]
    return "\n\n".join(parts) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _megabytes(value: int | None) -> str:
    return "-" if value is None else f"{value / 1e6:,.1f} MB"


def machine_line(results: Results) -> str:
    """Return one paragraph on when and where figures were measured."""
    machine = results["machine"]
    pools = ", ".join(
        f"{p.get('prefix')} {p.get('version') or ''}".strip() + f" ({p['num_threads']} threads)"
        for p in machine["thread_pools"]
    )
    kind = "quick run" if results["quick"] else "full run"
    return (
        f"{results['date']}, {kind}. {machine['processor']}, {machine['cores']} cores; Python "
        f"{machine['python']}, NumPy {machine['numpy']}, SciPy {machine['scipy']}, scikit-learn "
        f"{machine['scikit-learn']}; {pools}. Load average at the start "
        f"{machine['load_average']}, at the end {machine['load_average_at_end']}."
    )


def _methods(shapes: list[Results], key: str) -> list[str]:
    names: list[str] = []
    for shape in shapes:
        names += [n for n in (*shape[key], *shape["errors"]) if n not in names]
    return [n for n in names if n not in (_FIT_ONLY, _FLOOR)]


def _per_shape(shapes: list[Results], key: str, *, first: list[str]) -> str:
    names = _methods(shapes, key)
    rows = []
    for shape in shapes:
        cells = [shape["errors"].get(n) or number(shape[key].get(n)) for n in names]
        given = {"set": shape["name"], "shape": shape["shape"], "data": shape["data"]}
        rows.append([*(given[f] for f in first), *cells])
    return table([*first, *names], rows)


def _seconds(shapes: list[Results]) -> str:
    rounds = [r for shape in shapes for r in shape["rounds"].values() if r["kept"] > 1]
    counts = sorted({r["kept"] for r in rounds})
    disturbed = max(r["disturbed"] / r["kept"] for r in rounds)
    note = (
        f"Medians of {' or '.join(map(str, counts))} rounds in which the methods took turns (t-SNE "
        "once). Rounds were repeated while other processes took more than 5 % of a core; the "
        f"JSON file has the counts (at most {100 * disturbed:.0f} % of the rounds of any figure "
        "remained disturbed)."
    )
    return _per_shape(shapes, "seconds", first=["set", "shape", "data"]) + "\n\n" + note


def _ratios(shapes: list[Results]) -> str:
    return _per_shape(shapes, "times_ours", first=["set"])


def _floor(results: Results) -> str:
    rows = []
    for case in (*results["shapes"], *results["far_from_zero"]):
        low, high = case["fit_over_floor_quartiles"]
        seconds = case["seconds"]
        rows.append(
            [
                case["name"],
                case["shape"],
                number(seconds[_FIT_ONLY]),
                number(seconds[_FLOOR]),
                f"{case['fit_over_floor']:.2f}",
                f"{low:.2f} to {high:.2f}",
            ]
        )
    return table(["set", "shape", "fit, s", "floor, s", "ratio", "middle half"], rows)


def _wide(wide: Results) -> str:
    low, high = wide["fit_over_svds_quartiles"]
    names = list(wide["seconds"])
    cells = [number(wide["seconds"][n]) for n in names]
    ratio = f"{wide['fit_over_svds']:.2f} ({low:.2f} to {high:.2f})"
    found = table(
        ["shape", *(f"{n}, s" for n in names), "ratio", "rounds"],
        [[wide["shape"], *cells, ratio, str(wide["rounds"]["kept"])]],
    )
    memory = wide["memory"]
    return (
        f"{found}\n\nPeak beyond the data: {_megabytes(memory['traced_peak_bytes'])}, that is "
        f"{memory['times_data']:.2f} times the data and {100 * memory['share_of_matrix']:.1f} % of "
        f"one M x M matrix ({_megabytes(memory['matrix_bytes'])})."
    )


def _memory(memory: Results) -> str:
    return (
        f"Memory maps of {memory['shape']} float64, solver {memory['solver']!r}: the peak that "
        f"tracemalloc sees is {_megabytes(memory['traced_peak_bytes'])}: one chunk of "
        f"{_megabytes(memory['chunk_bytes'])} and {memory['matrices_beyond_chunk']:.2f} M x M "
        f"matrices of {_megabytes(memory['matrix_bytes'])}. The resident set grew by "
        f"{_megabytes(memory['resident_growth_bytes'])}, which counts the pages of the files that "
        "the system keeps in memory and could drop."
    )


def targets_table(found: list[Results]) -> str:
    words = {True: "reached", False: "not reached", None: "not measured"}
    rows = [[t["name"], number(t["value"]), t["limit"], words[t["reached"]]] for t in found]
    return table(["target", "value", "limit", ""], rows)
