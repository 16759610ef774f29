"""Steps of a long run: each says how it went."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
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
    minutes_max: int | None = None,
) -> Step:
    """Run a command; what it says goes to a log, whose end is shown if it fails.

    A command that takes longer than it may is ended, with all that it started, and has failed.
    """
    begun_s = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(None if minutes_max is None else minutes_max * 60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return Step(False, f"ended after {minutes_max} min", time.monotonic() - begun_s)  # noqa: FBT003 - is_well
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
    lines = log.read_text("utf-8", "replace").splitlines()
    if code != 0:
        print(*lines[-_TAIL_LINES:], sep="\n", flush=True)
    # Behind what a command says, make says that it failed.
    said = (line for line in reversed(lines) if line.strip() and not line.startswith("make"))
    says = next(said, "")
    return Step(code == 0, says, time.monotonic() - begun_s)


def commit_here() -> str:
    """The commit of this checkout, marked if its code differs from it; `none` outside of one.

    Tables of results are written while tests run, and mark nothing.
    """
    commit = _git("rev-parse", "--short", "HEAD").stdout.strip()
    is_changed = (
        _git("diff", "--quiet", "HEAD", "--", ":(exclude,glob)tests/**/results/*").returncode != 0
    )
    return f"{commit}-dirty" if commit and is_changed else commit or "none"


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["git", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def show_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print what was run."""
    lines = [head, ["---"] * len(head), *rows]
    print("", *(f"| {' | '.join(cells)} |" for cells in lines), sep="\n", flush=True)
