"""Do the tests notice faults? Small ones are put into the code, one at a time.

    CPCAPP_DATA=... python benchmarks/mutants.py

Into a copy of measure/filters.py and decide/ of the splicing package: operators, constants,
conditions, slices and return values are changed, statements removed. The tests of the file run
first, then those of its neighbours, and only for faults that they miss the shipped model on twelve
real photos. Also seven faults that were once missed. Writes benchmarks/results/mutants.json and
mutants.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from _equivalent_mutants import EQUIVALENT
from _mutant_tests import PASSED, ROOT, SourceCopy
from _mutations import Mutant, mutants_of
from _report import machine_line, table

RESULTS = Path(__file__).parent / "results"
PACKAGE = ROOT / "src" / "cpcapp" / "splicing"
TESTS = Path("tests") / "splicing"
NEIGHBOURS = ("measure/test_filters.py", "decide", "test_localizer.py", "test_presets.py")
ON_PHOTOS = "test_quality.py"
TARGET = 0.8
DEFAULT_SAMPLE = 400
_LONGEST = 600.0
MIN_PER_FILE = 14


@dataclass(frozen=True)
class Named:
    """A fault that no test noticed once."""

    name: str
    file: str
    before: str
    after: str
    tests: str


NAMED = (
    Named(
        "mosaic contrast left out of the map",
        "measure/filters.py",
        "            line *= np.sqrt(contrast)\n",
        "            pass\n",
        "measure/test_filters.py",
    ),
    Named(
        "one direction of four missing in the contrast",
        "measure/mosaic.py",
        "steps = ((0, far), (far, 0), (slant, slant), (slant, -slant))",
        "steps = ((0, far), (far, 0), (slant, slant))",
        "measure/test_mosaic.py",
    ),
    Named(
        "no offset of the mosaic contrast",
        "measure/measure.py",
        "        contrast += np.float32(preset.mosaic_offset)\n",
        "",
        "test_localizer.py",
    ),
    Named(
        "certainty of the region always 1",
        "decide/region.py",
        "certainty = 1.0 - np.exp(-np.maximum(losses, 0.0) / options.certainty_evidence)",
        "certainty = np.ones_like(losses)",
        "decide/test_region.py",
    ),
    Named(
        "narrow seams averaged away",
        "decide/region.py",
        "cv2.resize(cv2.dilate(found, reach), size,",
        "cv2.resize(found, size,",
        "decide/test_region.py",
    ),
    Named(
        "no start from the statistics",
        "decide/cut.py",
        "(*_tree_starts(tree, evidence), *sides.starts())",
        "_tree_starts(tree, evidence)",
        "decide/test_cut.py",
    ),
    Named(
        "no ridge in Fisher's direction",
        "train/calibrate.py",
        "np.diag(_RIDGE[network] * np.diag(covariance) + 1e-9)",
        "1e-9 * np.eye(len(covariance))",
        "train/test_calibrate.py",
    ),
)


def files() -> list[str]:
    """Return the files that have tests of their own."""
    found = [PACKAGE / "measure" / "filters.py", *sorted((PACKAGE / "decide").glob("*.py"))]
    names = [path.relative_to(PACKAGE).as_posix() for path in found]
    return [name for name in names if (ROOT / TESTS / own_tests(name)).is_file()]


def draw(by_file: dict[str, list[Mutant]], n: int, seed: int) -> list[Mutant]:
    """Draw from each file in proportion to its mutants, but some from each."""
    total = sum(map(len, by_file.values()))
    generator = random.Random(seed)
    chosen: list[Mutant] = []
    for mutants in by_file.values():
        wanted = max(MIN_PER_FILE, round(n * len(mutants) / total))
        chosen += generator.sample(mutants, min(wanted, len(mutants)))
    return chosen


def own_tests(file: str) -> str:
    folder, _, name = file.rpartition("/")
    return f"{folder}/test_{name}" if folder else f"test_{name}"


def stages(own: str) -> list[tuple[str, list[str]]]:
    """Return the tests in the order in which they are tried."""
    paths = [str(TESTS / name) for name in NEIGHBOURS if name != own]
    others = [*paths, f"--deselect={TESTS / own}"]
    return [
        ("own", [str(TESTS / own)]),
        ("neighbours", others),
        ("photos", [str(TESTS / ON_PHOTOS)]),
    ]


# Seconds, by the first test of a file or by stage.
Limits = dict[str, float]


class Workers:
    """Copies of the source, one for each job."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._jobs = jobs
        self._copies: SimpleQueue[SourceCopy] = SimpleQueue()
        for number in range(jobs):
            self._copies.put(SourceCopy(folder / str(number)))

    def check(self, tests: Sequence[str]) -> float:
        """Return the seconds that tests take without a fault; exit if they fail."""
        copy = self._copies.get()
        ended, seconds = copy.run(tests, _LONGEST)
        self._copies.put(copy)
        if ended != PASSED:
            sys.exit(f"mutants: {' '.join(tests)} {ended} without any fault")
        return seconds

    def try_all(self, mutants: Sequence[Mutant], limits: Limits) -> list[str | None]:
        """Return for each mutant which tests noticed it, or None."""
        with ThreadPoolExecutor(self._jobs) as pool:
            found = []
            for number, stage in enumerate(
                pool.map(lambda mutant: self._try(mutant, limits), mutants), start=1
            ):
                found.append(stage)
                if sys.stderr.isatty():
                    missed = found.count(None)
                    print(f"\r{number}/{len(mutants)}, {missed} missed", end="", file=sys.stderr)
        return found

    def _try(self, mutant: Mutant, limits: Limits) -> str | None:
        copy = self._copies.get()
        try:
            with copy.changed(mutant.file, mutant.code):
                for stage, tests in stages(own_tests(mutant.file)):
                    limit = limits[tests[0] if stage == "own" else stage]
                    if copy.run(tests, limit)[0] != PASSED:
                        return stage
        finally:
            self._copies.put(copy)
        return None

    def notices(self, named: Named, limits: Limits) -> bool:
        path = PACKAGE / named.file
        code = path.read_text()
        if code.count(named.before) != 1:
            sys.exit(f"mutants: {named.before!r} is not once in {named.file}; change NAMED")
        copy = self._copies.get()
        try:
            with copy.changed(named.file, code.replace(named.before, named.after)):
                tests = str(TESTS / named.tests)
                return copy.run([tests], limits[tests])[0] != PASSED
        finally:
            self._copies.put(copy)


def find_limits(workers: Workers, by_file: dict[str, list[Mutant]]) -> Limits:
    """Run all tests without a fault; those of a fault that hangs end after ten times as long."""
    own = {str(TESTS / own_tests(file)) for file in by_file} | {str(TESTS / n.tests) for n in NAMED}
    runs = {name: [name] for name in sorted(own)}
    runs["neighbours"] = [str(TESTS / name) for name in NEIGHBOURS]
    runs["photos"] = [str(TESTS / ON_PHOTOS)]
    return {name: 20.0 + 10.0 * workers.check(tests) for name, tests in runs.items()}


def summarize(by_file: dict[str, list[Mutant]], tried: list[tuple[Mutant, str | None]]) -> Any:
    rows = []
    for file, mutants in by_file.items():
        here = [(mutant, stage) for mutant, stage in tried if mutant.file == file]
        rows.append(
            {
                "file": file,
                "mutants": len(mutants),
                "tried": len(here),
                "killed": sum(stage is not None for _, stage in here),
                "killed_by": {
                    name: sum(stage == name for _, stage in here)
                    for name in ("own", "neighbours", "photos")
                },
                "equivalent": sum(
                    stage is None and reason_of(mutant) is not None for mutant, stage in here
                ),
            }
        )
    return rows


def reason_of(mutant: Mutant) -> str | None:
    """Return why no test could notice a mutant, if that is known."""
    return EQUIVALENT.get((mutant.file, mutant.source, mutant.change))


def as_markdown(result: dict[str, Any]) -> str:
    total = result["total"]
    rows = [
        [
            row["file"],
            str(row["mutants"]),
            str(row["tried"]),
            str(row["killed"]),
            f"{100 * row['killed'] / row['tried']:.0f} %",
            *(str(row["killed_by"][name]) for name in ("own", "neighbours", "photos")),
            str(row["equivalent"]),
        ]
        for row in [*result["files"], total]
    ]
    header = ["file", "faults", "tried", "noticed", "share"]
    header += ["by its own tests", "by its neighbours'", "on photos", "can't be noticed"]
    survivors = [
        [
            f"{s['file']}:{s['line']}",
            f"`{s['change']}`".replace("|", "\\|"),
            s["equivalent"] or "",
        ]
        for s in result["survivors"]
    ]
    parts = [
        "# Faults that the tests notice",
        machine_line(result),
        f"Seed {result['seed']}, {result['minutes']} minutes. Target: at least "
        f"{100 * TARGET:.0f} % of all that were tried.",
        table(header, rows),
        "## Faults that were once missed",
        table(
            ["fault", "file", ""],
            [
                [n["name"], n["file"], "noticed" if n["killed"] else "MISSED"]
                for n in result["named"]
            ],
        ),
        "## Missed",
        table(["where", "change", "why it can't be noticed"], survivors) if survivors else "None.",
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=DEFAULT_SAMPLE, help="faults to try; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="only files whose name holds this text")
    parser.add_argument("--named-only", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS / "mutants.json")
    arguments = parser.parse_args()
    if "CPCAPP_DATA" not in os.environ:
        parser.error("set CPCAPP_DATA to the folder that holds columbia_dev and casia2_pairs")
    os.environ["CPCAPP_REQUIRE_DATA"] = "1"
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Not before: the processes of the tests import cpcapp from copies.
    from _machine import describe_machine, load_average

    machine, start = describe_machine(), time.perf_counter()
    by_file = {
        file: mutants_of(file, (PACKAGE / file).read_text())
        for file in files()
        if arguments.only in file
    }
    n_all = sum(map(len, by_file.values()))
    sample = draw(by_file, arguments.n or n_all, arguments.seed)
    if arguments.named_only:
        sample = []
    with tempfile.TemporaryDirectory() as scratch:
        workers = Workers(Path(scratch), arguments.jobs)
        limits = find_limits(workers, by_file)
        named = [
            {"name": n.name, "file": n.file, "killed": workers.notices(n, limits)} for n in NAMED
        ]
        tried = list(zip(sample, workers.try_all(sample, limits), strict=True))
    rows = summarize(by_file, tried)
    result = {
        "date": date.today().isoformat(),
        "machine": machine | {"load_average_at_end": load_average()},
        "quick": bool(arguments.only) or arguments.named_only or 0 < arguments.n < DEFAULT_SAMPLE,
        "seed": arguments.seed,
        "minutes": round((time.perf_counter() - start) / 60.0),
        "total": _total(rows),
        "files": [row for row in rows if row["tried"]],
        "named": named,
        "survivors": [
            {
                "file": mutant.file,
                "line": mutant.line,
                "source": mutant.source,
                "change": mutant.change,
                "equivalent": reason_of(mutant),
            }
            for mutant, stage in tried
            if stage is None
        ],
    }
    arguments.output.write_text(json.dumps(result, indent=2) + "\n")
    if tried:
        arguments.output.with_suffix(".md").write_text(as_markdown(result))
        print(as_markdown(result), end="")
    share = result["total"]["killed"] / max(result["total"]["tried"], 1)
    missed = [n["name"] for n in named if not n["killed"]]
    if missed or (tried and share < TARGET):
        sys.exit(f"mutants: {100 * share:.1f} % noticed; missed by name: {missed or 'none'}")


def _total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    sums = {
        key: sum(row[key] for row in rows) for key in ("mutants", "tried", "killed", "equivalent")
    }
    by = {
        name: sum(row["killed_by"][name] for row in rows)
        for name in ("own", "neighbours", "photos")
    }
    return {"file": "all", **sums, "killed_by": by}


if __name__ == "__main__":
    main()
