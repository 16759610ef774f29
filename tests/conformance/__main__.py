"""`python -m tests.conformance [DIR]`: replays vectors and prints every disagreement.

Without DIR the public vectors are replayed. The last line is `N passed, M failed`; the exit code
is 1 where any failed.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.state.memory import MemoryStore
from headrace.services.state.rocks import RocksMemory, RocksStore
from tests.conformance import sidecar_operators, versioned
from tests.conformance.pipelines import OPERATORS
from tests.conformance.sidecar.rules import why_not
from tests.conformance.sidecar.runner import run_vectors
from tests.conformance.sidecar.trial import Manner
from tests.conformance.vectors import Vector, load

BATCH_SIZES = (1, 7, 1000)
_SHOWN_MAX = 5
_HEAP_MIB = 512


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = _parser()
    options = parser.parse_args(arguments)
    vectors = load(options.directory, options.area)
    through_sidecar = options.through == "sidecar"
    if through_sidecar and options.store:
        parser.error("--store goes with --through operators; a sidecar's state is RocksDB's")
    if options.restart and not through_sidecar:
        parser.error("--restart goes with --through sidecar")
    if options.through == "spark" and (options.store or options.batch):
        parser.error("--through spark cuts and stores as Spark does; leave --store and --batch out")
    with tempfile.TemporaryDirectory(prefix="headrace-conformance-") as folder:
        if options.through == "spark":
            return _report(_through_spark(vectors, Path(folder)))
        if through_sidecar:
            manner = Manner(commit_records=options.batch, restarts=options.restart)
            return _report(_through_sidecar(vectors, Path(folder), manner))
        sizes = BATCH_SIZES if options.batch is None else (options.batch,)
        open_store = store_opener(options.store or "memory", Path(folder))
        return _report((vector, _disagreements(vector, sizes, open_store)) for vector in vectors)


def run_vector(
    vector: Vector, batch_size: int, open_store: sidecar_operators.OpenStore
) -> list[str]:
    """The disagreements of one vector, by whichever half of headrace it speaks about."""
    if vector["operator"] in OPERATORS:
        return sidecar_operators.run_vector(vector, batch_size, open_store)
    return versioned.run_vector(vector, batch_size)


def store_opener(kind: str, folder: Path) -> sidecar_operators.OpenStore:
    """A function that opens a new, empty store."""
    if kind == "memory":
        return MemoryStore
    memory = RocksMemory(memory_bytes=64 << 20)
    numbers = count()
    return lambda: RocksStore(folder / str(next(numbers)), memory)


def _disagreements(
    vector: Vector, sizes: Iterable[int], open_store: sidecar_operators.OpenStore
) -> list[str]:
    return [
        f"batch {size}: {disagreement}"
        for size in sizes
        for disagreement in run_vector(vector, size, open_store)
    ]


def _through_sidecar(
    vectors: Sequence[Vector], folder: Path, manner: Manner
) -> Iterable[tuple[Vector, list[str]]]:
    """Run the vectors that a sidecar can run on a broker of our own, and list the others."""
    reasons = Counter(reason for vector in vectors if (reason := why_not(vector)) is not None)
    for reason, times in reasons.most_common():
        print(f"{times:4} not for the sidecar: {reason}")
    chosen = [vector for vector in vectors if why_not(vector) is None]
    # A broker that was just told of a topic asks for patience, which is nobody's business.
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    # ProgressRow to stop, we end our broker and sidecars as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    broker = EmbeddedBroker(folder / "kafka", heap_mib=_HEAP_MIB)
    broker.start()
    try:
        found = run_vectors(chosen, broker.bootstrap_servers, folder, manner)
    finally:
        broker.stop()
    return zip(chosen, found, strict=True)


def _through_spark(vectors: Sequence[Vector], folder: Path) -> Iterable[tuple[Vector, list[str]]]:
    """The vectors that speak of versioned tables and their joins, in streaming queries."""
    # The rest runs without Spark.
    from tests.conformance.spark import runner  # noqa: PLC0415
    from tests.spark.frames import small_session  # noqa: PLC0415

    chosen = [vector for vector in vectors if vector["area"] in runner.AREAS]
    print(f"{len(vectors) - len(chosen):4} not for Spark: they speak of the sidecar's operators")
    spark = small_session("conformance")
    try:
        return zip(chosen, runner.run_vectors(spark, chosen, folder), strict=True)
    finally:
        spark.stop()


def _report(results: Iterable[tuple[Vector, list[str]]]) -> int:
    """Print what disagrees, and how many did; the exit code."""
    failed = passed = 0
    for vector, disagreements in results:
        if disagreements:
            failed += 1
            print(f"{vector['area']}/{vector['name']}")
            print("\n".join(f"  {line}" for line in disagreements[:_SHOWN_MAX]))
        else:
            passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, help="folder of vectors (default: ours)")
    parser.add_argument("--area", help="only this area, such as suppress")
    parser.add_argument(
        "--through",
        choices=["operators", "sidecar", "spark"],
        default="operators",
        help="what runs the vectors; `sidecar` is `headrace run` over a real broker, `spark` are"
        " streaming queries",
    )
    parser.add_argument(
        "--store", choices=["memory", "rocks"], help="where operators remember (default: memory)"
    )
    parser.add_argument(
        "--batch",
        type=int,
        help="records a batch (default: 1, 7 and 1000); records a commit through the sidecar"
        " (default: as time goes)",
    )
    parser.add_argument(
        "--restart",
        action="store_true",
        help="stop each sidecar after a third of its input, and again after two, the second time"
        " taking its state from the disk",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
