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


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows as a page shows them."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_table(folder: Path | None, name: str, introduction: str, rows: str) -> None:
    """Show a table, and keep it where somebody asked for that."""
    print(f"\n{rows}", flush=True)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.md").write_text(f"{introduction}\n\n{rows}", "utf-8")
