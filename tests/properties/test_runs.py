"""A table with runs answers as one without, and forgets runs that nobody can ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.contracts.record import Record
from headrace.spark_jobs.versioned import runs, table_rows
from headrace.spark_jobs.versioned.at_once import LookUps, NewVersions
from headrace.spark_jobs.versioned.history import VersionedStore
from headrace.spark_jobs.versioned.records import objects
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.versioned.table_rows import RUN
from tests.properties.strategies import MORE

RETENTION_MS = 20


Put = tuple[bytes, int, bytes | None]


class Batch(NamedTuple):
    """Versions that are put, and look-ups, in their steps; taken at once or one by one."""

    puts: Sequence[Put]
    asks: Sequence[tuple[bytes, int]]
    at_once: bool = True
    replaces: bool = False
    """True if the store is to return what the puts replace; the look-ups are left out."""


Answers = list[object]
keys = st.sampled_from((b"a", b"b", b"c"))
times_ms = st.integers(0, 40)
puts = st.lists(st.tuples(keys, times_ms, st.none() | st.binary(max_size=1)), max_size=8)
asks = st.lists(st.tuples(keys, times_ms), max_size=8)
batches = st.lists(st.builds(Batch, puts, asks, st.booleans(), st.booleans()), max_size=6)
MANY: list[Put] = [(b"a", time_ms, b"%d" % time_ms) for time_ms in range(10)]
GONE: list[Put] = [*MANY[:3], (b"a", 4, None), *[(b"b", time_ms, b"b") for time_ms in range(10)]]
"""A key is gone at 4, and the run has versions of another one until 9."""
AGAIN: list[Put] = [(b"a", 26, b"x")]
LATER: list[Put] = [(b"%d" % number, 26, b"x") for number in range(20)]
LATE = Batch([(b"a", 3, b"late"), (b"b", 20, b"x")], [(b"a", time_ms) for time_ms in range(12)])


@pytest.fixture(scope="module", autouse=True)
def _have_rows_of_several_keys() -> Iterator[None]:
    """Have a batch change most rows of a table, so that it may write a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_rows, "ROW_BYTES", 400)
        patch.setattr(table_rows, "ROW_BYTES_MIN", 400)
        yield


@MORE
@given(given_batches=batches)
@example(given_batches=[Batch(MANY, [(b"a", 9)]), LATE])
@example(given_batches=[Batch(MANY, [(b"a", 9)]), LATE._replace(at_once=False)])
@example(given_batches=[Batch(GONE, [(b"a", 9)]), Batch(LATER, []), Batch(AGAIN, LATE.asks)])
@example(given_batches=[Batch(MANY, [(b"a", 9)]), Batch(MANY[3:5], [(b"a", 9)]), LATE])
@example(given_batches=[Batch(MANY, [], replaces=True), LATE])
def test_runs_change_no_answer(given_batches: list[Batch]) -> None:
    check(given_batches)


@pytest.mark.parametrize("seed", range(4))
def test_runs_change_no_answer_over_many_keys(seed: int) -> None:
    draws = Random(seed)

    def drawn(number: int) -> Batch:
        def key() -> bytes:
            return b"%d" % draws.randrange(40)

        def time_ms() -> int:
            return number * 2 + draws.randrange(12)

        puts = [(key(), time_ms(), draws.choice((None, b"v", b"w" * 30))) for _ in range(50)]
        asks = [(key(), time_ms() - draws.choice((0, 0, 8))) for _ in range(50)]
        return Batch(puts, asks, draws.random() < 0.8, draws.random() < 0.1)

    made, forgotten = check([drawn(number) for number in range(40)])
    assert made > 3
    assert forgotten > 1


def check(given_batches: list[Batch]) -> tuple[int, int]:
    """Take batches with runs and without, and compare; return how many runs came and went."""
    with_runs, without = MemoryRows(), MemoryRows()
    before: set[str] = set()
    made, forgotten = 0, 0
    for batch in given_batches:
        told = []
        for rows, has_runs in ((with_runs, True), (without, False)):
            state = TaskState(rows, 3)
            store = VersionedStore(state, "table", RETENTION_MS)
            with pytest.MonkeyPatch.context() as patch:
                if not has_runs:
                    patch.setattr(runs, "RUN_VERSIONS_MIN", 1 << 60)
                told.append(_taken(store, batch))
                state.save()
        assert told[0] == told[1]
        stored = {name.partition("/")[0] for name in with_runs if RUN in name}
        assert all(name in _numbers_of(with_runs) for name in stored)
        made, forgotten = made + len(stored - before), forgotten + len(before - stored)
        before = stored
    assert not any(RUN in name for name in without)
    return made, forgotten


def _numbers_of(rows: MemoryRows) -> set[str]:
    numbers = TaskState(rows).numbers
    return {name.removeprefix("buckets:").rpartition(":")[0] for name in numbers if RUN in name}


def _taken(store: VersionedStore, batch: Batch) -> Answers:
    if batch.replaces:
        olds, are_latest, taken = store.put_all(*_columns(batch.puts))
        return [olds.tolist(), are_latest.tolist(), taken.tolist()]
    records = [Record(key, None, time_ms, (), "s", 0, 0) for key, time_ms in batch.asks]
    if not batch.at_once:
        # A put at once tells only how many were taken.
        told: Answers = [store.put(key, value, time_ms) for key, time_ms, value in batch.puts]
        found = store.values_as_of(records)
        held = [store.as_of(key, time_ms) for key, time_ms in batch.asks]
        assert found == [None if one is None else one.value for one in held]
        return [*told, *held, store.expired(records, all_of_them=False)]
    of_keys, values, at_ms = _columns(batch.puts)
    steps = np.arange(len(of_keys))
    new = NewVersions(of_keys, at_ms, steps, values, np.zeros(len(of_keys), bool))
    asked_keys, _, asked_ms = _columns([(key, time_ms, None) for key, time_ms in batch.asks])
    after = np.full(len(asked_keys), len(of_keys))
    # Every second look-up comes in the middle of the puts.
    after[::2] = len(of_keys) // 2
    order = np.argsort(after, kind="stable")
    asked = LookUps(asked_keys[order], asked_ms[order], after[order])
    count, answers = store.meet(new, asked, all_of_them=False)
    return [count, answers.values.to_pylist(), answers.expired.tolist()]


def _columns(versions: Sequence[Put]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        objects([key for key, _, _ in versions]),
        objects([value for _, _, value in versions]),
        np.array([time_ms for _, time_ms, _ in versions], np.int64),
    )
