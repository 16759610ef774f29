"""`make test-certain`: run the tests of every commit again and again, in random order.

A test that is certain passes each time, however slow the machine is. `tests/results/certain.md` has
how often which test failed, and how far its times spread.

python -m tests.long.certain --runs 20                  at full speed
python -m tests.long.certain --runs 5 --on one-core     beside nothing, on one core
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple
from xml.etree import ElementTree as ET

from tests.machines.steps import ROOT, commit_here, run

_TABLE = ROOT / "tests" / "results" / "certain.md"
_RUNS = ROOT / "build" / "certain"
_SLOWEST = 10
_HEAD = (
    *("condition", "commit", "cores", "runs", "red runs"),
    *("seconds, least", "median", "most", "tests that failed"),
)
_ONE_CORE = ("taskset", "--cpu-list", "0")
_BUSY = "while True: pass"
_WRITES = """
import os, sys
with open(os.path.join(sys.argv[1], "full"), "wb") as file:
    while True:
        file.seek(0)
        file.write(bytes(64 << 20))
        os.fsync(file.fileno())
"""


class Condition(NamedTuple):
    """The state of the machine meanwhile."""

    prefix: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    """A program that runs beside the tests."""


CONDITIONS = {
    "full-speed": Condition(),
    "one-core": Condition(_ONE_CORE),
    "half-core": Condition(_ONE_CORE, (*_ONE_CORE, sys.executable, "-c", _BUSY)),
    "slow-disk": Condition((), (sys.executable, "-c", _WRITES)),
}


class Ran(NamedTuple):
    """The results of a run of all tests."""

    seconds: float
    failed: tuple[str, ...]
    times_s: dict[str, float]


def main() -> bool:
    """Run as the command line says; whether nothing was red."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--on", choices=CONDITIONS, default="full-speed")
    options = parser.parse_args()
    commit = commit_here()
    folder = _RUNS / commit / options.on
    folder.mkdir(parents=True, exist_ok=True)
    first = len(list(folder.glob("*.xml"))) + 1
    for number in range(first, first + options.runs):
        report = folder / f"{number}.xml"
        _run_once(CONDITIONS[options.on], report, seed=number)
        ran = read_report(report)
        print(f"{options.on} {number}: {ran.seconds:.0f} s, failed: {ran.failed}", flush=True)
    by_condition = {
        name: [read_report(one) for one in sorted((_RUNS / commit / name).glob("*.xml"))]
        for name in CONDITIONS
    }
    earlier = _TABLE.read_text("utf-8") if _TABLE.exists() else ""
    _TABLE.write_text(page(commit, by_condition, earlier), "utf-8")
    return not any(ran.failed for runs in by_condition.values() for ran in runs)


def _run_once(condition: Condition, report: Path, *, seed: int) -> None:
    words = [
        *(*condition.prefix, sys.executable, "-m", "pytest", "-n", "auto", "--dist", "loadfile"),
        *("--no-loadscope-reorder", "--shuffle", str(seed), f"--junitxml={report}"),
    ]
    with _beside(condition.beside):
        run(words, report.with_suffix(".log"), environment={"PYTHONHASHSEED": str(seed)})


@contextlib.contextmanager
def _beside(words: tuple[str, ...]) -> Iterator[None]:
    if not words:
        yield
        return
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        process = subprocess.Popen([*words, folder])
        try:
            yield
        finally:
            process.kill()
            process.wait()


def read_report(report: Path) -> Ran:
    """Read a run's report; a run that left none has failed whole."""
    if not report.exists():
        return Ran(0.0, ("the run itself",), {})
    suite = ET.parse(report).getroot()[0]  # noqa: S314 - pytest wrote it
    times_s: dict[str, float] = defaultdict(float)
    failed = []
    for case in suite.iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        times_s[name] += float(case.get("time", 0))
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
    return Ran(float(suite.get("time", 0)), tuple(failed), dict(times_s))


def page(commit: str, by_condition: dict[str, list[Ran]], earlier: str = "") -> str:
    """Return the page of results; it keeps what the earlier page has of other commits."""
    cores = len(os.sched_getaffinity(0))
    kept = [line for line in earlier.splitlines() if _is_kept(line, commit, by_condition)]
    lines = [
        "# Certain",
        "",
        "Written by `make test-certain`: `make test`'s tests in random order, again and again.",
        "",
        f"| {' | '.join(_HEAD)} |",
        f"| {' | '.join(['---'] * len(_HEAD))} |",
        *kept,
    ]
    for name, runs in by_condition.items():
        if runs:
            took = [ran.seconds for ran in runs]
            failed = sorted({test for ran in runs for test in ran.failed})
            red = sum(bool(ran.failed) for ran in runs)
            seconds = " | ".join(f"{one:.0f}" for one in (min(took), median(took), max(took)))
            counts = f"{commit} | {cores} | {len(runs)} | {red}"
            lines.append(f"| {name} | {counts} | {seconds} | {', '.join(failed)} |")
    lines += ["", f"The tests that take longest on {commit}, in seconds:", ""]
    lines += ["| condition | test | least | median | most |", "| --- | --- | --- | --- | --- |"]
    for name, runs in by_condition.items():
        lines += [f"| {name} | {line} |" for line in _slowest(runs)]
    return "\n".join([*lines, ""])


def _is_kept(line: str, commit: str, by_condition: dict[str, list[Ran]]) -> bool:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    return len(cells) == len(_HEAD) and cells[0] in by_condition and cells[1] != commit


def _slowest(runs: list[Ran]) -> Iterator[str]:
    times: dict[str, list[float]] = defaultdict(list)
    for ran in runs:
        for test, seconds in ran.times_s.items():
            times[test].append(seconds)
    for test in sorted(times, key=lambda one: -median(times[one]))[:_SLOWEST]:
        took = times[test]
        yield f"{test} | {min(took):.1f} | {median(took):.1f} | {max(took):.1f}"


if __name__ == "__main__":
    sys.exit(not main())
