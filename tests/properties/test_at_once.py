"""A table that meets a batch at once does what it does one by one, to the last byte of state."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.contracts.record import Record
from headrace.spark_jobs.versioned.at_once import LookUps, NewVersions
from headrace.spark_jobs.versioned.history import REJECTED, VersionedStore
from headrace.spark_jobs.versioned.layout import decode_numbers, encode_numbers
from headrace.spark_jobs.versioned.records import objects
from headrace.spark_jobs.versioned.state import HEADER, MemoryRows, TaskState
from headrace.spark_jobs.versioned.table_rows import PREFIX
from tests.properties.strategies import MORE

pytestmark = pytest.mark.usefixtures("no_runs")
"""The states of both are compared, and only a table that takes a batch at once writes runs."""

BUCKETS = 3


class Turn(NamedTuple):
    """A version that is put, or a look-up."""

    is_put: bool
    key: bytes | None
    time_ms: int
    value: bytes | None


class Options(NamedTuple):
    """How a store is kept and asked."""

    retention_ms: int
    follows: bool = False
    """True if it follows progress."""
    all_of_them: bool = False
    of_older: bool = False
    """True if its first batch is of a version whose tables did not grow."""


class Outcome(NamedTuple):
    """The outcome of a batch: versions taken, values met, and which look-ups came too late."""

    taken: int
    values: list[bytes | None]
    expired: list[bool]


keys = st.sampled_from((b"", b"a", b"b", b"c")) | st.binary(max_size=2)
times_ms = st.integers(-1, 9)


def put(key: bytes, time_ms: int, value: bytes | None) -> Turn:
    """A version that is put."""
    return Turn(is_put=True, key=key, time_ms=time_ms, value=value)


def ask(key: bytes | None, time_ms: int) -> Turn:
    """A look-up."""
    return Turn(is_put=False, key=key, time_ms=time_ms, value=None)


puts = st.builds(put, keys, times_ms, st.none() | st.binary(max_size=2))
asks = st.builds(ask, st.none() | keys, times_ms)
B9, A9 = put(b"b", 9, b"y"), put(b"a", 9, b"z")
ASKED = ask(b"a", 3)
OLD_AND_MET = [put(b"a", 2, b"x"), B9, ASKED, A9]
"""The look-up asks for a version past its retention, which is still the latest of its key.

In the other batch a later version is put before, so it is forgotten.
"""
OLD_AND_NOT = [OLD_AND_MET[0], put(b"a", 4, b"w"), B9, ASKED, A9, ASKED]
GONE = [put(b"a", 2, None), B9, ASKED, A9]
"""The look-up meets a tombstone past its retention."""
TIED = [put(b"b", 1, b"3"), put(b"a", 3, b"1"), put(b"a", 3, b"2")]
TIED_LATER = [put(b"a", 3, b"4"), put(b"b", 1, None), put(b"a", 2, b"5")]
ASKS = [ask(key, time_ms) for key in (b"a", b"b") for time_ms in range(5)]
"""Of versions of one time the last one that was put is met, whichever batch put it."""
options = st.builds(Options, st.integers(0, 6), st.booleans(), st.booleans(), st.booleans())
batches = st.lists(st.lists(puts | asks, max_size=16), max_size=4)


@MORE
@given(given_batches=batches, options=options)
@example(given_batches=[OLD_AND_MET], options=Options(1))
@example(given_batches=[OLD_AND_NOT], options=Options(1))
@example(given_batches=[GONE[:3], [ASKED]], options=Options(1))
@example(given_batches=[[*ASKS[5:9], *GONE]], options=Options(1))
@example(given_batches=[TIED, ASKS, [*TIED_LATER, *ASKS]], options=Options(9))
def test_at_once_equals_one_by_one(given_batches: list[list[Turn]], options: Options) -> None:
    check(given_batches, options)


@pytest.mark.parametrize("of_older", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_at_once_equals_one_by_one_over_many_keys(seed: int, *, of_older: bool) -> None:
    draws = Random(seed)

    def turn() -> Turn:
        key, time_ms = b"%d" % draws.randrange(200), draws.randrange(100)
        if draws.random() < 0.5:
            return ask(key, time_ms)
        return put(key, time_ms, draws.choice((None, b"v", b"w" * 30)))

    batches = [[turn() for _ in range(draws.choice((1, 2, 5, 60)))] for _ in range(25)]
    check(batches, Options(50, of_older=of_older))


def check(given_batches: list[list[Turn]], options: Options) -> None:
    """Take batches both ways, and compare outcomes and state."""
    single, whole = MemoryRows(), MemoryRows()
    for number, batch in enumerate(given_batches):
        told = []
        for rows, take in ((single, _one_by_one), (whole, _at_once)):
            state = TaskState(rows, BUCKETS)
            store = VersionedStore(state, "table", options.retention_ms)
            if options.follows:
                store.follows_progress, store.time_ms = True, 3 * number
            # The same store takes the second half: a batch may also come in pieces.
            half = len(batch) // 2
            pieces = (batch[:half], batch[half:])
            told.append([take(store, piece, all_of_them=options.all_of_them) for piece in pieces])
            with pytest.MonkeyPatch.context() as patch:
                if options.of_older and number == 0:
                    patch.setattr("headrace.spark_jobs.versioned.table_rows.rows_for", lambda _: 0)
                state.save()
        assert told[0] == told[1]
        assert single == whole
        if options.of_older and number == 0:
            _forget_tables(single)
            _forget_tables(whole)


def _forget_tables(rows: MemoryRows) -> None:
    """Make of a state whose tables did not grow one of a version in which none did."""
    numbers = decode_numbers(rows[HEADER])
    kept = {name: number for name, number in numbers.items() if not name.startswith(PREFIX)}
    rows[HEADER] = encode_numbers(kept)


def _one_by_one(store: VersionedStore, batch: list[Turn], *, all_of_them: bool) -> Outcome:
    taken = 0
    values: list[bytes | None] = []
    expired: list[bool] = []
    for turn in batch:
        if turn.is_put:
            assert turn.key is not None
            taken += store.put(turn.key, turn.value, turn.time_ms) != REJECTED
        else:
            asked = [Record(turn.key, None, turn.time_ms, (), "stream", 0, 0)]
            values += store.values_as_of(asked)
            expired.append(bool(store.expired(asked, all_of_them=all_of_them)))
    return Outcome(taken, values, expired)


def _at_once(store: VersionedStore, batch: list[Turn], *, all_of_them: bool) -> Outcome:
    steps = np.arange(len(batch))
    puts_at = np.array([turn.is_put for turn in batch], bool)
    of_keys = objects([turn.key for turn in batch])
    at_ms = np.array([turn.time_ms for turn in batch], np.int64)
    values = objects([turn.value for turn in batch])
    no_copies = np.zeros(len(batch), bool)
    new = NewVersions(of_keys, at_ms, steps, values, no_copies).where(puts_at)
    asked = LookUps(of_keys[~puts_at], at_ms[~puts_at], steps[~puts_at])
    taken, answers = store.meet(new, asked, all_of_them=all_of_them)
    return Outcome(taken, answers.values.to_pylist(), answers.expired.tolist())
