"""Whether the state is right: the rows in the changelog, the rows on disk, and what both go on to.

Rows are compared by their bytes. A database forgets stretches of time that are over, which no
changelog says, and a changelog is purged of records that are over; so a row may be on one side
alone if its time is over by all that its pipeline says. The meaning of a row is judged by going on:
fresh operators over either state must do with the next records what the oracle does that has seen
all of the stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.contracts.errors import StateCorrupt
from headrace.contracts.hops import Hop
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import (
    AggregatePolicy,
    DeduplicatePolicy,
    ReorderPolicy,
    SuppressPolicy,
    Tumbling,
)
from headrace.contracts.record import Record, offset_of
from headrace.services.operators.chain import Chain
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.operator import Batch, Step
from headrace.services.operators.rows import unpack_time
from headrace.services.state import layout
from headrace.services.state.changelog import (
    ABOUT,
    CHANGELOG,
    Restoration,
    read_position,
    read_purged,
)
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from headrace.services.state.rocks import RocksMemory, RocksStore
from headrace.services.state.store import Store
from tests.kill.expected import Answer
from tests.kill.pipelines import Case
from tests.kill.stream import POISON_MS

Rows = dict[tuple[str, bytes], bytes]
"""By store and key."""
_TIMED = b"\x01"
_TIME_AT = slice(1, 9)
"""Rows that have a time begin with this byte, and have it there."""
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


def on_disk(folders: Sequence[Path], cut_short: Collection[Path] = ()) -> list[MemoryStore]:
    """Copies of the databases of one partition, whoever has one; the furthest comes first.

    A database that was cut short and that no worker opened since is still damaged, and is left out.
    """
    memory = RocksMemory(_MEMORY_BYTES)
    copies = []
    for folder in filter(Path.exists, folders):
        try:
            copies.append(_copy(folder, memory))
        except StateCorrupt:
            if folder not in cut_short:
                raise
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


def row_problems(case: Case, rebuilt: Store, disk: Store) -> Iterator[str]:
    """How the rows on disk differ from those in the changelog."""
    if changelog_position(rebuilt) != changelog_position(disk):
        yield (
            f"the changelog's last commit ends at {changelog_position(rebuilt)}, and the disk is at"
            f" {changelog_position(disk)}"
        )
    logged, stored = _rows(rebuilt), _rows(disk)
    if case.row_life_ms is None:
        logged = {place: row for place, row in logged.items() if place in stored}
        stored = {place: row for place, row in stored.items() if place in logged}
    reached = read_position(Overlay(rebuilt, case.spec.pipeline).view(ABOUT))
    life_ms = case.row_life_ms or 0
    counts_from_ms = 0 if reached is None else reached.time_ms - life_ms
    for store, key in sorted(logged.keys() & stored.keys()):
        if logged[store, key] != stored[store, key]:
            yield f"not the same: {store} {key.hex()}"
    for store, key in sorted(logged.keys() - stored.keys()):
        if not _is_over(key, counts_from_ms):
            yield f"in the changelog alone: {store} {key.hex()}"
    # Until it is purged for the first time, a changelog knows every row that is on disk.
    is_purged = read_purged(Overlay(disk, case.spec.pipeline).view(ABOUT)) > 0
    waits_ms = _waits_ms(case)
    for store, key in sorted(stored.keys() - logged.keys()):
        released_ms = 0 if reached is None else reached.time_ms - waits_ms.get(store, life_ms)
        if not (is_purged and _is_over(key, max(counts_from_ms, released_ms))):
            yield f"on disk alone: {store} {key.hex()}"


def _waits_ms(case: Case) -> dict[str, int]:
    """How far the source's time passes a row, by store, before the row can be over.

    A held record is over when it is released; a window's result has the window's end in its key,
    and waits for its grace. An id is over behind its interval, while the segment that it stands in,
    which gives its row a time, begins earlier and may live longer.
    """
    waits_ms, waited_ms, closes_ms = {}, 0, 0
    for policy in case.spec.operators:
        if isinstance(policy, DeduplicatePolicy):
            waits_ms[str(policy.store)] = waited_ms + policy.interval_ms
            continue
        if isinstance(policy, ReorderPolicy):
            waited_ms += policy.grace_ms
        elif isinstance(policy, SuppressPolicy):
            waited_ms += closes_ms if policy.limit_ms is None else policy.limit_ms
        elif isinstance(policy, AggregatePolicy) and isinstance(policy.window, Tumbling):
            closes_ms = policy.window.grace_ms
            continue
        else:
            continue
        waits_ms[str(policy.store)] = waited_ms
    return waits_ms


def _is_over(key: bytes, counts_from_ms: int) -> bool:
    """Whether a row has a time, and is too old to count."""
    is_timed = key[:1] == _TIMED and len(key) > _TIME_AT.stop
    return is_timed and unpack_time(key[_TIME_AT]) < counts_from_ms


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
    must = [one[:4] for one in answer.cleaned if offset_of(one.cause) >= states.position]
    for name, store in states.stores.items():
        step = go_on(spec, states, store, source)
        does = [record[:4] for record in step.forwarded.records]
        if (problem := going_on_problem(name, does, must)) is not None:
            yield problem


def go_on(
    spec: PipelineSpec, states: PartitionStates, store: MemoryStore, source: Sequence[Record]
) -> Step:
    """Let fresh operators over a state go on with the records that came after it."""
    after = [one for one in source if offset_of(one) >= states.position]
    taken = [one for one in after if not states.hop.is_first or one.timestamp_ms < POISON_MS]
    view_of = Overlay(store, spec.pipeline).view
    lanes = None if states.hop.is_first else Lanes(view_of(ABOUT))
    return Chain(states.hop.operators, view_of, lanes=lanes).process(Batch.of(taken))


def going_on_problem(
    name: str, does: Sequence[Sequence[object]], must: Sequence[Sequence[object]]
) -> str | None:
    """How the records that left operators over a state differ from the oracle's; None: nowhere."""
    if does == must:
        return None
    right = sum(1 for one, other in zip(must, does, strict=False) if one == other)
    return (
        f"operators over the state {name} go on with {len(does)} records, of which"
        f" {right} are right; the oracle has {len(must)}"
    )


def row_count(store: Store) -> int:
    """How many rows a state has."""
    return len(_rows(store))
