"""The job fills its table in large micro-batches, and then takes small ones, which are measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from headrace.services.broker.embedded import EmbeddedBroker
from tests.bench.processes import files_below
from tests.bench.spark.shipped import (
    Moment,
    command_of,
    described,
    last_commit,
    refuse_wrong,
    topic_of,
    watch_batches,
)
from tests.bench.spark.topics import read_rows
from tests.bench.tables.inputs import Inputs

WARMING_BATCHES, BATCHES = 8, 20
_BEHIND = 2
"""Micro-batches that are not measured: the last one may be small, and the one before it too."""
_FILL_RECORDS_A_BATCH = 1_000_000
_SINK = "kafka"
_BROKER_MIB = 512


class Figures(NamedTuple):
    """The time and memory of micro-batches alike over a table of so many keys."""

    keys: int
    orders: int
    """Of a micro-batch."""
    fill_seconds: float
    """How long the job took to read the table."""
    batches: int
    seconds: float
    cpu_seconds: dict[str, float]
    """By program."""
    written_bytes: int
    """Into the checkpoint."""
    checkpoint_bytes: int
    """How large it was at the end."""
    memory_bytes_max: dict[str, int]
    rows: int

    @property
    def cpu_seconds_a_batch(self) -> float:
        """Of all processes."""
        return sum(self.cpu_seconds.values()) / self.batches

    @property
    def ms_a_batch(self) -> float:
        """From one commit to the next."""
        return 1_000 * self.seconds / self.batches

    @property
    def written_bytes_a_batch(self) -> float:
        """Into the checkpoint."""
        return self.written_bytes / self.batches


class Written:
    """Sums up what comes into a folder; a file that has gone since counts as well."""

    def __init__(self, folder: Path) -> None:
        """Begin with nothing."""
        self._folder = folder
        self._sizes: dict[Path, int] = {}

    def look(self) -> int:
        """Return how many bytes have come so far; a file is written once, under a name of its own.

        A name that begins with a dot is one that a file has before it is whole, or of a checksum.
        """
        self._sizes |= sizes_below(self._folder)
        return sum(self._sizes.values())


def sizes_below(folder: Path) -> dict[Path, int]:
    """Return the sizes of all whole files below a folder."""
    files = files_below(folder).items()
    return {path: file.st_size for path, file in files if not path.name.startswith(".")}


def measure(keys: int, orders: int, folder: Path) -> Figures:
    """Fill a table of so many keys, and measure micro-batches of so many orders over it."""
    folder.mkdir(parents=True)
    broker = EmbeddedBroker(folder / "broker", heap_mib=_BROKER_MIB, java_options=())
    broker.start()
    try:
        return _measured(keys, orders, broker.bootstrap_servers, folder)
    finally:
        broker.stop()


def _measured(keys: int, orders: int, servers: str, folder: Path) -> Figures:
    inputs = Inputs(servers, keys, (WARMING_BATCHES + BATCHES + _BEHIND) * orders)
    inputs.write_table()
    file, checkpoint = folder / "job.yaml", folder / "checkpoint"
    job = described(_SINK, inputs.filled, servers, folder)
    file.write_text(json.dumps({**job, "records-per-batch": _FILL_RECORDS_A_BATCH}), "utf-8")
    _, _, fill_seconds = watch_batches(command_of(file), checkpoint, folder / "fill.log")
    begin = 1 + (last_commit(checkpoint) or 0)

    inputs.delete_table()
    inputs.write_changes()
    # A hundredth more, since the markers of transactions have offsets as well.
    of_a_batch = orders * 101 // 100
    file.write_text(json.dumps({**job, "records-per-batch": of_a_batch}), "utf-8")
    written = Written(checkpoint)
    bytes_at: dict[int, int] = {}

    def note(batch: int) -> None:
        bytes_at[batch] = written.look()

    tree, moments, _ = watch_batches(command_of(file), checkpoint, folder / "log", note)
    made = inputs.filled.judge(read_rows(servers, topic_of(_SINK, inputs.filled)))
    refuse_wrong(f"the job with {keys:,} keys", made, inputs.filled)
    start, end = between(moments, begin)
    return Figures(
        keys,
        orders,
        fill_seconds,
        BATCHES,
        end.seconds - start.seconds,
        {name: used - start.cpu_seconds.get(name, 0.0) for name, used in end.cpu_seconds.items()},
        bytes_at[end.batch] - bytes_at[start.batch],
        sum(sizes_below(checkpoint).values()),
        dict(tree.memory_max),
        made.rows,
    )


def between(moments: list[Moment], begin: int) -> tuple[Moment, Moment]:
    """Return the ends of the micro-batches before the first and of the last that is measured."""
    by_batch = {each.batch: each for each in moments}
    first = begin + WARMING_BATCHES - 1
    return by_batch[first], by_batch[first + BATCHES]
