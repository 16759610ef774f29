"""`python -m tests.conformance [DIR]`: replays vectors and prints every disagreement.

Without DIR the public vectors are replayed. The last line is `N passed, M failed`; the exit code
is 1 where any failed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from services.state.memory import MemoryStore
from services.state.rocks import RocksMemory, RocksStore
from tests.conformance import sidecar_operators, versioned
from tests.conformance.vectors import Vector, load

BATCH_SIZES = (1, 7, 1000)
_SHOWN_MAX = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    options = _parser().parse_args(arguments)
    vectors = load(options.directory, options.area)
    sizes = BATCH_SIZES if options.batch is None else (options.batch,)
    failed = passed = 0
    with tempfile.TemporaryDirectory(prefix="headrace-conformance-") as folder:
        open_store = store_opener(options.store, Path(folder))
        for vector in vectors:
            disagreements = [
                f"batch {size}: {disagreement}"
                for size in sizes
                for disagreement in run_vector(vector, size, open_store)
            ]
            if disagreements:
                failed += 1
                print(f"{vector['area']}/{vector['name']}")
                print("\n".join(f"  {line}" for line in disagreements[:_SHOWN_MAX]))
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


def run_vector(
    vector: Vector, batch_size: int, open_store: sidecar_operators.OpenStore
) -> list[str]:
    """The disagreements of one vector, by whichever half of headrace it speaks about."""
    if vector["operator"] in sidecar_operators.OPERATORS:
        return sidecar_operators.run_vector(vector, batch_size, open_store)
    return versioned.run_vector(vector, batch_size)


def store_opener(kind: str, folder: Path) -> sidecar_operators.OpenStore:
    """A function that opens a new, empty store."""
    if kind == "memory":
        return MemoryStore
    memory = RocksMemory(memory_bytes=64 << 20)
    numbers = count()
    return lambda: RocksStore(folder / str(next(numbers)), memory)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, help="folder of vectors (default: ours)")
    parser.add_argument("--area", help="only this area, such as suppress")
    parser.add_argument(
        "--through", choices=["operators"], default="operators", help="what runs the vectors"
    )
    parser.add_argument("--store", choices=["memory", "rocks"], default="memory")
    parser.add_argument("--batch", type=int, help="records a batch (default: 1, 7 and 1000)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
