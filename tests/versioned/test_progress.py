"""Progress counts once the records before it were read: told in any order, over any restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.progress import (
    MILESTONE_OFFSETS,
    Progress,
    milestone_of,
    milestone_row,
    progress_row,
)
from headrace.spark_jobs.versioned.progress import (
    WAITING_MAX,
    Expected,
    ProgressRow,
    TaskProgress,
    Waiting,
    pack_progress,
    place_of,
    silent_place,
    unpack_progress,
)
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from tests.oracles.progress import Place, Row, passed

PLACES = [place_of("prices", 0), place_of("orders.cleaned", 11)]
_Idle = tuple[str, int, int | None, int | None]


class Task:
    """A task that is opened anew for each batch."""

    def __init__(self, *expected: str, begins: dict[str, int] | None = None) -> None:
        self.rows = MemoryRows()
        self.expected = expected or PLACES[:1]
        self._begins = begins or {}

    def batch(
        self, read: Mapping[str, int], told: Sequence[tuple[str, int, int | None] | _Idle]
    ) -> int | None:
        """The progress that counts after so much was read, and these rows were told."""
        state = TaskState(self.rows)
        progress = TaskProgress(state, self.expected, self._begins)
        for place, offset in read.items():
            progress.read_up_to(place, offset)
        for place, progress_ms, names, *idle in told:
            progress.add(place, ProgressRow(progress_ms, names, *idle))
        state.save()
        return progress.progress_ms()


def test_progress_waits_for_the_record_that_it_names() -> None:
    (place, _), task = PLACES, Task()
    assert task.batch({}, [(place, 10, 4), (place, 20, 7)]) is None
    assert task.batch({place: 3}, []) is None
    assert task.batch({place: 4}, []) == 10
    assert task.batch({place: 6}, [(place, 30, 9)]) == 10
    assert task.batch({place: 9}, []) == 30
    assert task.batch({}, [(place, 40, 9)]) == 40, "it was read before"


def test_progress_that_names_no_record_waits_for_what_was_told_before() -> None:
    (place, _), task = PLACES, Task()
    assert task.batch({}, [(place, 5, None)]) == 5
    assert task.batch({}, [(place, 10, 4), (place, 11, None)]) == 5
    assert task.batch({}, [(place, 12, None)]) == 5
    assert task.batch({place: 4}, []) == 12


def test_a_topic_that_was_made_anew_is_not_waited_for_as_the_old_one_was() -> None:
    (place, _), task = PLACES, Task()
    assert task.batch({}, [(place, 10, 5_000)]) is None
    assert task.batch({place: 0}, [(place, 20, 0)]) == 20


def test_records_that_were_deleted_are_not_waited_for() -> None:
    place, _ = PLACES
    assert Task(begins={place: 4}).batch({}, [(place, 10, 4)]) is None
    assert Task(begins={place: 5}).batch({}, [(place, 10, 4)]) == 10


def test_no_progress_counts_before_all_places_have_told() -> None:
    one, other = PLACES
    task = Task(one, other)
    assert task.batch({one: 4}, [(one, 10, 4)]) is None
    assert task.batch({}, [(other, 7, 0)]) is None
    assert task.batch({other: 0}, []) == 7


def test_a_place_that_is_gone_holds_nobody_back() -> None:
    one, other = PLACES
    before = Task(one, other, silent_place(1))
    assert before.batch({one: 4, other: 9}, [(one, 10, 4), (other, 7, 8)]) is None
    before.expected = (one, place_of("orders.renamed", 0))
    assert before.batch({}, [(place_of("orders.renamed", 0), 20, None)]) == 10
    state = TaskState(before.rows)
    assert not [name for name in state.numbers if "orders.cleaned" in name or "input" in name]


def test_a_partition_that_a_topic_gets_later_is_waited_for() -> None:
    (place, _), task = PLACES, Task()
    assert task.batch({place: 4}, [(place, 10, 4)]) == 10
    later = place_of("prices", 1)
    assert task.batch({}, [(later, 3, 5), (place, 20, 4)]) is None
    assert task.batch({later: 5}, []) == 3
    assert task.batch({}, [(place_of("others", 0), 1, None)]) == 3, "nobody asked for it"


def test_by_partition_a_task_waits_for_its_own() -> None:
    expected = Expected({0: 4, 1: 4, 2: 0}, {0: "a", 1: "b"}, by_partition=True)
    assert expected.places(3) == {"a:3", "b:3", "input 2"}
    assert Expected({0: 2}, {0: "a"}).places(3) == {"a:0", "a:1"}


def test_by_partition_a_task_of_a_partition_that_the_topics_got_later_releases_too() -> None:
    expected = Expected({0: 2, 1: 2}, {0: "a", 1: "b"}, by_partition=True)
    one, other = place_of("a", 2), place_of("b", 2)
    task = Task()
    task.expected = tuple(expected.places(2))
    assert task.batch({one: 4}, [(one, 10, 4)]) is None
    assert task.batch({other: 0}, [(other, 7, 0)]) == 7


def test_an_idle_partition_is_left_out_until_it_speaks_again() -> None:
    one, other = PLACES
    task = Task(one, other)
    assert task.batch({one: 4}, [(one, 10, 4)]) is None
    assert task.batch({}, [(other, -1, None, -1)]) == 10, "an empty one, at once"
    assert task.batch({}, [(other, 5, 2)]) == -1, "it has records that are still to be read"
    assert task.batch({other: 2}, []) == 5


def test_an_idle_row_waits_for_the_record_that_it_names() -> None:
    one, other = PLACES
    task = Task(one, other)
    rows: list[tuple[str, int, int | None, int]] = [(other, 7, 4, 90)]
    assert task.batch({one: 4}, [(one, 10, 4), *rows]) is None
    assert task.batch({other: 3}, []) is None
    assert task.batch({other: 4}, []) == 10
    assert task.batch({}, [(one, 10, 4, 60)]) == 91, "all are idle: all that came has passed"
    assert task.batch({one: 5}, []) == 10, "a record of it was read, though no row speaks of it"
    assert task.batch({}, [(one, 40, 5)]) == 40


def test_records_that_were_deleted_do_not_wake_a_partition() -> None:
    one, other = PLACES
    task = Task(one, other, begins={other: 9})
    assert task.batch({one: 4}, [(one, 10, 4), (other, 7, 6, 90)]) == 10
    assert task.batch({}, [(one, 10, 4, 100)]) == 101


def test_of_many_rows_some_wait_evenly_and_the_last_among_them() -> None:
    """A reader far behind lets go as it reads: at x percent of what was written, of about x."""
    (place, _), task = PLACES, Task()
    rows = 100_000
    told: list[tuple[str, int, int | None]] = [(place, at, at) for at in range(rows)]
    for start in range(0, rows, 7_000):
        assert task.batch({}, told[start : start + 7_000]) is None
    waiting = [name for name in TaskState(task.rows).numbers if name.startswith("waiting:")]
    assert len(waiting) <= WAITING_MAX
    behind = []
    for offset in range(0, rows, 500):
        counts = task.batch({place: offset}, [])
        assert counts is None or counts <= offset
        behind.append(offset - (counts or 0))
    assert max(behind) <= rows / 16
    assert task.batch({place: rows - 1}, []) == rows - 1


def test_packed_rows_come_back_as_they_were() -> None:
    rows = [ProgressRow(-1, None, -1), ProgressRow(1 << 62, 1 << 61), ProgressRow(5, 0, 7)]
    assert unpack_progress(pack_progress(rows)) == rows
    assert unpack_progress(pack_progress([])) == []


@st.composite
def rows_of_a_partition(draw: st.DrawFn) -> list[ProgressRow]:
    """A sidecar names the record that it cleaned last, in each row where it is idle at least."""
    rows, offset = [], draw(st.none() | st.integers(0, 3))
    for _ in range(draw(st.integers(0, 8))):
        idle_ms = draw(st.none() | st.integers(0, 9))
        names = idle_ms is not None or draw(st.booleans())
        rows.append(ProgressRow(draw(st.integers(0, 9)), offset if names else None, idle_ms))
        further = draw(st.integers(0, 3))
        offset = (0 if offset is None else offset) + further if further else offset
    return rows


@given(rows_of_a_partition(), st.integers(-1, 9))
def test_rows_that_were_collapsed_say_what_they_said_one_by_one(
    rows: list[ProgressRow], read: int
) -> None:
    together = Waiting()
    for row in rows:
        together.add(row)
    place = PLACES[0]
    found = []
    for said in (rows, unpack_progress(pack_progress(together.rows()))):
        progress = TaskProgress(TaskState(MemoryRows()), [place], {})
        progress.read_up_to(place, read)
        for row in said:
            progress.add(place, row)
        found.append(progress.progress_ms())
    assert found[0] == found[1]


transactions = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=12)
"""How many records each cleans, and how much further its progress is."""
pieces = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=12)


@given(transactions, pieces)
def test_progress_counts_if_and_once_its_records_were_read(
    committed: list[tuple[int, int]], read_in_turn: list[tuple[int, int]]
) -> None:
    """A reader sees records and rows of a partition in any proportion."""
    place, task = PLACES[0], Task()
    rows: list[tuple[int, int | None]] = []
    end, progress_ms = 0, 0
    for records, further_ms in committed:
        end, progress_ms = end + records, progress_ms + further_ms
        rows.append((progress_ms, end - 1 if end else None))
    position = told = 0
    for of_records, of_rows in [*read_in_turn, (end, len(rows))]:
        position, before = min(end, position + of_records), told
        told = min(len(rows), told + of_rows)
        read = {place: position - 1} if position else {}
        counts = task.batch(read, [(place, *row) for row in rows[before:told]])
        due = [at_ms for at_ms, last in rows[:told] if last is None or last < position]
        assert counts == (max(due) if due else None)
    assert counts == progress_ms


commits = st.tuples(
    st.sampled_from(range(3)), st.integers(0, 3), st.integers(0, 9), st.booleans(), st.booleans()
)
"""A partition, its records, its progress, whether it falls asleep behind them; or a restart."""


@given(st.lists(st.tuples(commits, st.tuples(*[st.integers(0, 4)] * 3)), max_size=30))
def test_partitions_that_go_quiet_and_wake_agree_with_the_oracle(
    lives: list[tuple[tuple[int, int, int, bool, bool], tuple[int, int, int]]],
) -> None:
    """The progress is the minimum of those awake, in any proportion of records and rows."""
    places = [place_of("topic", number) for number in range(3)]
    task = Task(*places)
    written = [Place() for _ in places]
    all_rows: list[list[Row]] = [[] for _ in places]
    ends = [0] * len(places)
    for (number, records, further_ms, falls_asleep, _), take in lives:
        ends[number] += records
        rows = all_rows[number]
        progress_ms = (rows[-1].progress_ms if rows else 0) + further_ms
        named = ends[number] - 1 if ends[number] else None
        rows.append(Row(progress_ms, named, None))
        if falls_asleep:
            rows.append(Row(progress_ms, named, progress_ms + 3))
        told = []
        for place, one, each, end, size in zip(places, written, all_rows, ends, take, strict=True):
            one.read = min(end - 1, one.read + size)
            more = each[len(one.told) : len(one.told) + size]
            one.told += more
            told += [(place, *row) for row in more]
        read = {
            place: one.read for place, one in zip(places, written, strict=True) if one.read >= 0
        }
        assert task.batch(read, told) == passed(written)


def test_a_reader_far_behind_a_compacted_topic_lets_go_as_it_reads() -> None:
    """Compaction has left the last row of each key: a milestone each, and the end."""
    offsets, stretch = 50 * MILESTONE_OFFSETS, MILESTONE_OFFSETS // 100
    compacted: dict[bytes, Progress] = {}
    said = 0
    for offset in range(0, offsets, stretch):
        progress = Progress(0, offset, offset, "raw", offset, offset)
        rows = [progress_row(progress)[0]]
        if milestone_of(progress) > said:
            said = milestone_of(progress)
            rows.append(milestone_row(progress)[0])
        compacted |= dict.fromkeys(rows, progress)
    assert len(compacted) == offsets // MILESTONE_OFFSETS
    (place, _), task = PLACES, Task()
    kept = sorted(compacted.values(), key=lambda one: one.progress_ms)
    assert task.batch({}, [(place, one.progress_ms, one.cleaned_offset) for one in kept]) is None
    for percent in range(10, 101, 10):
        read = offsets * percent // 100
        let_go = task.batch({place: read}, [])
        assert let_go is not None
        assert read - let_go <= 2 * MILESTONE_OFFSETS
