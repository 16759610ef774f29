"""Steps of a long run: each says how it went, and what no time is left for is named at the end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
UNTIL = "HEADRACE_TESTS_UNTIL"
NOT_RUN = "not run"
_TAIL_LINES = 40


class Step(NamedTuple):
    """How a command went."""

    is_well: bool
    says: str
    """Its last line."""
    took_s: float

    @property
    def cell(self) -> str:
        """In a table."""
        return f"{'' if self.is_well else '**failed:** '}{self.says.strip('= ')}"


def run(
    words: Sequence[str | Path],
    log: Path,
    *,
    folder: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> Step:
    """Run a command; what it says goes to a log, whose end is shown if it fails."""
    begun_s = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        code = subprocess.run(
            words,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    lines = log.read_text("utf-8", "replace").splitlines()
    if code != 0:
        print(*lines[-_TAIL_LINES:], sep="\n", flush=True)
    # Behind what a command says, make says that it failed.
    said = (line for line in reversed(lines) if line.strip() and not line.startswith("make"))
    says = next(said, "")
    return Step(code == 0, says, time.monotonic() - begun_s)


def is_time_left() -> bool:
    """Whether something long may still begin."""
    until = os.environ.get(UNTIL)
    return until is None or time.time() < float(until)  # noqa: TID251 - it bounds the run


def write_table(
    folder: Path | None,
    name: str,
    introduction: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
) -> None:
    """Show what was run, and keep it where somebody asked for that.

    The first two cells name a row. What was not run now keeps the row of an earlier run.
    """
    top = [_line(head), _line(["---"] * len(head))]
    lines = [_line(row) for row in rows]
    print("", *top, *lines, sep="\n", flush=True)
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.md"
    before = file.read_text("utf-8").splitlines() if file.exists() else []
    kept = {_name(line): line for line in before if line.startswith("| ")}
    for line in lines:
        if NOT_RUN not in line or _name(line) not in kept:
            kept[_name(line)] = line
    for line in top:
        kept.pop(_name(line), None)
    page = [introduction, "", *top, *kept.values(), ""]
    file.write_text("\n".join(page), "utf-8")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _name(line: str) -> tuple[str, ...]:
    return tuple(line.split("|")[1:3])
