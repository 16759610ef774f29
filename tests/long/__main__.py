"""`make test-long`: run sections, the longest first, and note how each ended.

python -m tests.long                  every section that has not passed on this commit
python -m tests.long kill spark       these two
python -m tests.long kill --seed 7    what is drawn is drawn from 7
"""

from __future__ import annotations

import argparse
import platform
import secrets
import sys
from datetime import UTC, datetime

from tests.bench.race.machine import machine
from tests.chance import SEED
from tests.long.sections import SECTIONS, SEEDED
from tests.long.table import Row, read_rows, write_rows
from tests.machines.steps import ROOT, Step, commit_here, run

_LOGS = ROOT / "build" / "long"
_PYTEST = (
    *(sys.executable, "-m", "pytest", "-n", "auto", "--dist", "loadfile"),
    *("--no-loadscope-reorder", "--max-worker-restart", "1", "--long"),
)


def main() -> bool:
    """Run what the command line names; whether all of it passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("only", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--seed", type=int, help="draw from this instead of a new one")
    options = parser.parse_args()
    if unknown := set(options.only) - set(SECTIONS):
        parser.error(f"no section is called {', '.join(sorted(unknown))}")
    commit = commit_here()
    rows = read_rows()
    is_well = True
    for name in SECTIONS:
        if name not in (options.only or SECTIONS):
            continue
        if not options.only and name in rows and rows[name].passed and rows[name].commit == commit:
            print(f"{name}: passed on {commit} already", flush=True)
            continue
        rows[name] = _run_section(name, commit, options.seed)
        is_well &= rows[name].passed
        # Others may have noted a row meanwhile.
        write_rows(read_rows() | {name: rows[name]})
    return is_well


def _run_section(name: str, commit: str, seed: int | None) -> Row:
    section = SECTIONS[name]
    drawn = secrets.randbelow(1 << 31) if seed is None else seed
    words = list(section.command or (*_PYTEST, name))
    if name in SEEDED:
        words.append(str(drawn))
    print(f"{name}: {section.tries}; seed {drawn}, at most {section.minutes_max} min", flush=True)
    step = run(
        words,
        _LOGS / f"{name}.log",
        environment={SEED: str(drawn)},
        minutes_max=section.minutes_max,
    )
    row = Row(
        name,
        commit,
        f"{datetime.now(UTC):%Y-%m-%d}",  # noqa: TID251 - it says when this was run
        platform.python_version(),
        _machine(),
        str(drawn),
        f"{step.took_s / 60:.1f}",
        _result(step),
    )
    print(f"{name}: {row.result} ({row.minutes} min)", flush=True)
    return row


def _result(step: Step) -> str:
    return f"{'passed' if step.is_well else '**failed**'}: {step.says.strip('= ')}"


def _machine() -> str:
    here = machine()
    return f"{here['cores']}, {here['memory']}"


if __name__ == "__main__":
    sys.exit(not main())
