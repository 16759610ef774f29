"""`python -m tests.bench [OPERATOR ...]`: CPU cost of each operator over RocksDB, and of the store.

Every row is measured in a process of its own, from a state that holds as many ids as it says.
`ratio` is the CPU time of the operator's own store calls, made again by nobody, over the CPU time
of the operator with them: 1.00 would be an operator that costs nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench import purge
from tests.bench.measure import Figures, measure
from tests.bench.operators import BENCHES

_MEMORY_BYTES = 512 << 20
_RECORDS = 300_000
_HEADINGS = (
    "operator",
    "ids",
    "records/CPU-s",
    "bare store/CPU-s",
    "ratio",
    "state B/id",
    "cache MiB",
    "RSS MiB",
)


def main() -> None:
    """Measure what the command line names, everything by default."""
    options = _parser().parse_args()
    if options.purge:
        purge.main()
        return
    if options.one:
        (name,) = options.operators
        with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=options.folder) as folder:
            figures = measure(
                name, BENCHES[name], options.ids[0], _RECORDS, Path(folder), _MEMORY_BYTES
            )
        print(json.dumps(figures))
        return
    print(_line(_HEADINGS), flush=True)
    for name in options.operators or BENCHES:
        for ids in options.ids:
            print(_line(_row(_in_own_process(name, ids, options.folder))), flush=True)


def _in_own_process(name: str, ids: int, folder: Path | None) -> Figures:
    command = [sys.executable, "-m", "tests.bench", name, "--one", "--ids", str(ids)]
    if folder is not None:
        command += ["--folder", str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Figures(*json.loads(done.stdout))


def _row(figures: Figures) -> tuple[str, ...]:
    return (
        figures.operator,
        f"{figures.ids:,}",
        f"{figures.records_per_second:,.0f}",
        f"{figures.records / figures.store_seconds:,.0f}" if figures.ratio > _FREE else "-",
        f"{figures.ratio:.2f}" if figures.ratio > _FREE else "-",
        f"{figures.state_bytes / figures.ids:,.0f}",
        f"{figures.cache_bytes / (1 << 20):,.0f}",
        f"{figures.resident_bytes / (1 << 20):,.0f}",
    )


_FREE = 0.01
"""Below this the operator asks nothing of its store, and a ratio would say nothing."""


def _line(row: tuple[str, ...]) -> str:
    name, *numbers = row
    return f"{name:<12}" + "".join(f"{number:>17}" for number in numbers)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("operators", nargs="*", help=f"of {', '.join(BENCHES)}; default: all")
    parser.add_argument("--ids", type=int, nargs="+", default=[100_000, 10_000_000])
    parser.add_argument(
        "--folder", type=Path, help="where states are put (default: a temporary one)"
    )
    parser.add_argument("--purge", action="store_true", help="ways to forget old ids, instead")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
