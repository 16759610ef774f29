"""Progress counts once the records before it were read: told in any order, over any restart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.versioned.heard import WAITING_MAX, Heard, place_of
from spark_jobs.versioned.state import MemoryRows, TaskState

PLACES = [place_of("prices", 0), place_of("orders.cleaned", 11)]


class Task:
    """A task that is opened anew for each batch."""

    def __init__(self, expected: int = 1, begins: dict[str, int] | None = None) -> None:
        self.rows = MemoryRows()
        self._expected = expected
        self._begins = begins or {}

    def batch(self, read: dict[str, int], told: list[tuple[str, int, int | None]]) -> int | None:
        """What counts after so much was read, and these rows were told."""
        state = TaskState(self.rows)
        heard = Heard(state, self._expected, self._begins)
        for place, offset in read.items():
            heard.read_up_to(place, offset)
        for row in told:
            heard.tell(*row)
        state.save()
        return heard.progress_ms()


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


def test_nothing_counts_before_all_places_have_told() -> None:
    one, other = PLACES
    task = Task(expected=2)
    assert task.batch({one: 4}, [(one, 10, 4)]) is None
    assert task.batch({}, [(other, 7, 0)]) is None
    assert task.batch({other: 0}, []) == 7


def test_of_many_rows_some_wait_and_the_last_among_them() -> None:
    (place, _), task = PLACES, Task()
    rows: list[tuple[str, int, int | None]] = [(place, at, at) for at in range(10 * WAITING_MAX)]
    assert task.batch({}, rows) is None
    state = TaskState(task.rows)
    waiting = [name for name in state.numbers if name.startswith("waiting:")]
    assert len(waiting) <= WAITING_MAX
    last = 10 * WAITING_MAX - 1
    for offset in range(0, last, 50):
        counts = task.batch({place: offset}, [])
        assert counts is None or counts <= offset
    assert task.batch({place: last}, []) == last


transactions = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=12)
"""How many records each cleans, and how much further its progress is."""
pieces = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=12)


@given(transactions, pieces)
def test_what_counts_was_read_and_what_was_read_counts(
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
