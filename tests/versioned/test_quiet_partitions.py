"""The join over partitions that go quiet and wake, and over a backlog: held is what must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.record import Record
from headrace.spark_jobs.versioned.arrival import Arrival
from headrace.spark_jobs.versioned.progress import ProgressRow, TaskProgress, place_of
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.versioned.stream_table import StreamTableJoin
from headrace.spark_jobs.versioned.tables import Source, Versioned
from tests.oracles.progress import Place, Row, passed
from tests.oracles.versioned import History

TABLE, STREAM = 0, 1
FOREVER_MS = 1 << 40
NAMES = ("prices", "orders")
Joined = list[tuple[Record, bytes | None]]


@dataclass
class Partition:
    """The records of a partition, and the place of its reader."""

    input: int
    number: int
    records: list[Record] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    highest_ms: int = -1
    seen: Place = field(default_factory=Place)

    @property
    def place(self) -> str:
        """Its name."""
        return place_of(NAMES[self.input], self.number)

    def commit(self, times_ms: Sequence[int], key: bytes, *, is_idle: bool) -> None:
        """A transaction: records, no earlier than was promised, and the next promise."""
        promised_ms = self.rows[-1].progress_ms if self.rows else 0
        for more_ms in times_ms:
            offset = len(self.records)
            value = b"%d" % offset
            name = NAMES[self.input]
            one = Record(key, value, promised_ms + more_ms, (), name, self.number, offset)
            self.records.append(one)
            self.highest_ms = max(self.highest_ms, one.timestamp_ms)
        last = len(self.records) - 1 if self.records else None
        # A later record may be a little earlier than the latest one.
        self.rows.append(Row(max(promised_ms, self.highest_ms - 2), last, None))
        if is_idle:
            self.fall_asleep()

    def fall_asleep(self) -> None:
        """Say that nothing more comes for now."""
        before = self.rows[-1] if self.rows else Row(-1, None, None)
        self.rows.append(before._replace(idle_ms=self.highest_ms))

    def read(self, records: int, rows: int) -> tuple[list[Record], list[Row]]:
        """So many more of each."""
        start, told = self.seen.read + 1, len(self.seen.told)
        some, more = self.records[start : start + records], self.rows[told : told + rows]
        self.seen.read += len(some)
        self.seen.told += more
        return some, more


class Reader:
    """A task that is opened anew for each micro-batch."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self.partitions = partitions
        self.rows = MemoryRows()
        self.held = 0

    def batch(self, read: Sequence[tuple[Partition, list[Record], list[Row]]]) -> Joined:
        """Take what was read of each; what leaves."""
        state = TaskState(self.rows)
        table = Source(state, "prices", TABLE, Versioned(FOREVER_MS))
        join = StreamTableJoin(state, "join", table, stream=STREAM, join="left", release="progress")
        progress = TaskProgress(state, [each.place for each in self.partitions], {})
        found = [join.process([Arrival(at.input, one) for at, some, _ in read for one in some])]
        for at, some, _ in read:
            if some:
                progress.read_up_to(at.place, at.seen.read)
        for at, _, rows in read:
            for row in rows:
                progress.add(at.place, ProgressRow(*row))
        progress_ms = progress.progress_ms()
        if progress_ms is not None:
            found.append(join.advance(progress_ms, 0))
        state.save()
        assert join.balance() == 0
        self.held = join.held.count
        return [
            (one, value)
            for matches in found
            for one, value in zip(matches.records, matches.table_values.to_pylist(), strict=True)
        ]


class Oracle:
    """The same from everything that was read, with nothing remembered by halves."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self.partitions = partitions
        self.history = History(FOREVER_MS)
        self.held: list[Record] = []
        self.passed_ms = -1

    def batch(self, read: Sequence[tuple[Partition, list[Record], list[Row]]]) -> Joined:
        """The records that must be released."""
        joined: Joined = []
        for at, some, _ in read:
            for one in some:
                if at.input == TABLE:
                    self.history.put(one.key or b"", one.value, one.timestamp_ms)
                elif one.timestamp_ms < self.passed_ms:
                    joined.append(self._met(one))
                else:
                    self.held.append(one)
        reached_ms = passed([each.seen for each in self.partitions])
        if reached_ms is not None and reached_ms > self.passed_ms:
            self.passed_ms = reached_ms
            due = [one for one in self.held if one.timestamp_ms < reached_ms]
            self.held = [one for one in self.held if one.timestamp_ms >= reached_ms]
            joined += [self._met(one) for one in due]
        return joined

    def _met(self, one: Record) -> tuple[Record, bytes | None]:
        found = self.history.as_of(one.key or b"", one.timestamp_ms)
        return one, None if found is None else found[0]


PARTITIONS = [(TABLE, 0), (TABLE, 1), (TABLE, 2), (STREAM, 0), (STREAM, 1)]
commits = st.tuples(
    st.integers(0, len(PARTITIONS) - 1),
    st.lists(st.integers(0, 6), max_size=3),
    st.sampled_from([b"a", b"b"]),
    st.booleans(),
)
"""A partition, its records' times behind its promise, their key, and whether it sleeps then."""
reads = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=5, max_size=5)


@given(st.lists(st.tuples(commits, reads), max_size=25))
def test_a_join_over_partitions_that_go_quiet_and_wake(
    lives: list[tuple[tuple[int, list[int], bytes, bool], list[tuple[int, int]]]],
) -> None:
    """It says what the oracle says at each micro-batch, and holds nothing when all is quiet."""
    partitions = [Partition(*each) for each in PARTITIONS]
    reader, oracle = Reader(partitions), Oracle(partitions)
    left: Joined = []
    for (number, times_ms, key, is_idle), sizes in lives:
        partitions[number].commit(times_ms, key, is_idle=is_idle)
        read = [(at, *at.read(*size)) for at, size in zip(partitions, sizes, strict=True)]
        found = reader.batch(read)
        assert sorted(found) == sorted(oracle.batch(read))
        left += found
    for each in partitions:
        each.fall_asleep()
    left += reader.batch([(at, *at.read(1_000, 1_000)) for at in partitions])
    assert reader.held == 0, "all is read and quiet"
    orders = [one for each in partitions if each.input == STREAM for one in each.records]
    assert sorted(one for one, _ in left) == sorted(orders), "each left, and once"


def test_a_reader_far_behind_lets_go_as_it_reads() -> None:
    """All progress is told at once, and records are read a hundredth at a time."""
    partitions = [Partition(TABLE, 0), Partition(STREAM, 0)]
    size, piece = 12_000, 120
    for each in partitions:
        for _ in range(size // 10):
            each.commit([3] * 10, b"k", is_idle=False)
        each.fall_asleep()
    reader = Reader(partitions)
    most = 0
    for _ in range(0, size, piece):
        reader.batch([(at, *at.read(piece, size)) for at in partitions])
        most = max(most, reader.held)
    assert reader.held == 0
    assert most <= size / 16 + piece
