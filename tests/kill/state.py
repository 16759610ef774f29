"""Whether the state is right: the rows in the changelog, the rows on disk, and what both go on to.

Rows are compared by their bytes. A database forgets stretches of time that are over, which no
changelog says; so a row may be in the changelog alone if every row of its kind on disk is later.
Where the changelog was purged it is the other way round as well.
What a row means is judged by going on: fresh operators over either state must do with the next
records what the oracle does who has seen all of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from contracts.hops import Hop
from contracts.pipeline import PipelineSpec
from contracts.record import Record, offset_of
from services.operators.chain import Chain
from services.operators.operator import Batch
from services.state import layout
from services.state.changelog import ABOUT, CHANGELOG, Restoration, read_position, read_purged
from services.state.memory import MemoryStore
from services.state.overlay import Overlay
from services.state.rocks import RocksMemory, RocksStore
from services.state.store import Store
from tests.kill.expected import Answer
from tests.kill.stream import POISON_MS

Place = tuple[str, bytes]
"""Store and key."""
Rows = dict[Place, bytes]
_MEMORY_BYTES = 16 << 20
_EVERYTHING = (b"", b"\xff")


@dataclass(frozen=True)
class PartitionStates:
    """The state of one partition of a hop, twice."""

    hop: Hop
    partition: int
    position: int
    """The source offset that it has reached."""
    stores: dict[str, MemoryStore]
    """By where it comes from."""


def rebuilt(spec: PipelineSpec, changelog: Sequence[Record]) -> tuple[MemoryStore, list[bytes]]:
    """The state that the changelog alone gives, and the keys that were left open in it."""
    store = MemoryStore()
    restoration = Restoration(Overlay(store, spec.pipeline))
    restoration.take(changelog)
    return store, restoration.left_open()


def on_disk(folders: Sequence[Path]) -> list[MemoryStore]:
    """Copies of the databases of one partition, whoever has one; the furthest comes first."""
    memory = RocksMemory(_MEMORY_BYTES)
    copies = [_copy(folder, memory) for folder in folders if folder.exists()]
    return sorted(copies, key=changelog_position, reverse=True)


def _copy(folder: Path, memory: RocksMemory) -> MemoryStore:
    database = RocksStore(folder, memory)
    try:
        store = MemoryStore()
        store.write([], dict(database.range(*_EVERYTHING)))
        return store
    finally:
        database.close()


def changelog_position(store: Store) -> int:
    """The first changelog record that is not part of a state."""
    row = store.get_many([layout.POSITION_KEY + CHANGELOG.encode()])[0]
    return 0 if row is None else layout.unpack_position(row)


def source_position(spec: PipelineSpec, store: Store) -> int:
    """The source offset that a state has reached."""
    reached = read_position(Overlay(store, spec.pipeline).view(ABOUT))
    return 0 if reached is None else reached.offset


def row_problems(spec: PipelineSpec, rebuilt: Store, disk: Store) -> Iterator[str]:
    """How the rows on disk differ from those in the changelog."""
    if changelog_position(rebuilt) != changelog_position(disk):
        yield (
            f"the changelog's last commit ends at {changelog_position(rebuilt)}, and the disk is at"
            f" {changelog_position(disk)}"
        )
    logged, stored = _rows(rebuilt), _rows(disk)
    for store, key in sorted(logged.keys() & stored.keys()):
        if logged[store, key] != stored[store, key]:
            yield f"not the same: {store} {key.hex()}"
    for store, key in sorted(logged.keys() - stored.keys() - _over(logged, stored)):
        yield f"in the changelog alone: {store} {key.hex()}"
    # Until it is purged for the first time, a changelog knows every row that is on disk.
    is_purged = read_purged(Overlay(disk, spec.pipeline).view(ABOUT)) > 0
    over = _over(stored, logged) if is_purged else set()
    for store, key in sorted(stored.keys() - logged.keys() - over):
        yield f"on disk alone: {store} {key.hex()}"


def _over(rows: Rows, others: Rows) -> set[Place]:
    """Rows before all rows of their kind on the other side; rows are in order of time."""
    first: dict[Place, bytes] = {}
    for store, key in sorted(others):
        first.setdefault((store, key[:1]), key)
    return {place for place in rows if place[1] < first.get((place[0], place[1][:1]), b"\xff")}


def _rows(store: Store) -> Rows:
    start = layout.STORE_KEY
    rows: Rows = {}
    for name_key, number in store.range(start, layout.end_of(start)):
        prefix = layout.row_prefix(layout.unpack_number(number))
        name = name_key[len(start) :].decode()
        for key, row in store.range(prefix, layout.end_of(prefix)):
            rows[name, key[len(prefix) :]] = row
    return rows


def going_on_problems(
    spec: PipelineSpec, states: PartitionStates, source: Sequence[Record], answer: Answer
) -> Iterator[str]:
    """How fresh operators over each state differ from the oracle in the records that came after."""
    after = [one for one in source if offset_of(one) >= states.position]
    taken = [one for one in after if not states.hop.is_first or one.timestamp_ms < POISON_MS]
    must = [one[:4] for one in answer.cleaned if offset_of(one.cause) >= states.position]
    for name, store in states.stores.items():
        chain = Chain(states.hop.operators, Overlay(store, spec.pipeline).view)
        step = chain.process(Batch.of(taken))
        does = [record[:4] for record in step.forwarded.records]
        if does != must:
            right = sum(1 for one, other in zip(must, does, strict=False) if one == other)
            yield (
                f"operators over the state {name} go on with {len(does)} records, of which"
                f" {right} are right; the oracle has {len(must)}"
            )


def row_count(store: Store) -> int:
    """How many rows a state has."""
    return len(_rows(store))
