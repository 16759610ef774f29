"""`python -m tests.bench.tables`: micro-batches alike over tables of ever more keys.

A micro-batch must not cost more over a larger table: from the smallest to the largest a fifth at
most.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.race.machine import load
from tests.bench.tables.measured import Figures, measure
from tests.bench.tables.report import report

_KEYS = (100_000, 1_000_000, 10_000_000)
_ORDERS = (4_000, 40_000)


def main() -> None:
    """Measure as the command line says, and write what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tables", description=__doc__)
    parser.add_argument("--keys", nargs="+", type=int, default=_KEYS, help="of each table")
    parser.add_argument(
        "--orders", nargs="+", type=int, default=_ORDERS, help="of each micro-batch"
    )
    parser.add_argument("--results", type=Path, help="a folder for the page and its figures")
    options = parser.parse_args()
    loads = [load()]
    measured: list[Figures] = []
    for orders, keys in product(sorted(options.orders), sorted(options.keys)):
        # Each has a broker and a folder of its own, so that none leaves anything to the next.
        with TemporaryDirectory(prefix="bench-tables-", ignore_cleanup_errors=True) as temporary:
            measured.append(measure(keys, orders, Path(temporary, "run")))
        print(measured[-1], flush=True)
    loads.append(load())
    text = report(measured, loads)
    print(text)
    if options.results is not None:
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / "tables.md").write_text(text, "utf-8")
        figures = json.dumps([each._asdict() for each in measured], indent=1)
        (options.results / "tables.json").write_text(figures + "\n", "utf-8")


if __name__ == "__main__":
    main()
