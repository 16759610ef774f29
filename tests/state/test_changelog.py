"""A changelog restores whole commits alone, however it is cut, torn, compacted or read again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.contracts.errors import StateCorrupt
from headrace.contracts.record import Record
from headrace.services.state.changelog import (
    ABOUT,
    CHANGELOG,
    POSITION,
    RESTORED_AT,
    ChangelogRecord,
    Position,
    Restoration,
    Stamp,
    is_being_restored,
    put_position,
    put_stamp,
    reached,
    read_cleaned,
    read_position,
    read_purged,
    read_stamp,
    records_of,
    rewrite,
)
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay, StoreView
from headrace.services.state.store import Store, Stretch

STORES = ("", "a", "ab", "\u00e9")
KEYS = (b"", b"k", b"kk", b"\x00", b"\xff")
Rows = dict[tuple[str, bytes], bytes]
Changes = dict[tuple[str, bytes], bytes | None]

changes = st.dictionaries(
    st.tuples(st.sampled_from(STORES[1:]), st.sampled_from(KEYS)),
    st.one_of(st.none(), st.binary(max_size=2)),
    max_size=6,
)
cuts = st.lists(st.integers(0, 5), max_size=30)


class Step:
    """A commit, or one whose owner died before it was whole."""

    def __init__(self, changed: Changes, dies_after: int | None, gap: int) -> None:
        self.changed = changed
        self.dies_after = dies_after
        self.gap = gap

    def __repr__(self) -> str:
        return f"Step({self.changed}, {self.dies_after}, {self.gap})"


steps = st.lists(
    st.builds(Step, changes, st.one_of(st.none(), st.integers(0, 6)), st.integers(0, 2)),
    max_size=8,
)


class Writer:
    """Owners of a partition, one after another, and what they write."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.truth: Rows = {}
        self.closed_at = 0
        self._position = 0
        self._begin()

    def _begin(self) -> None:
        """A new owner, who has nothing but the changelog."""
        self._overlay = Overlay(MemoryStore(), "pipeline")
        restoration = Restoration(self._overlay)
        restoration.take(self.log)
        assert rows_of(self._overlay) == self.truth
        rewrite(self._overlay, restoration.left_open())

    def live(self, step: Step) -> None:
        """Write a commit, or the beginning of one."""
        for (store, key), row in step.changed.items():
            view = self._overlay.view(store)
            view.put_many({view.prefix + key: row})
        self._position += 1
        put_position(self._overlay.view(ABOUT), Position(self._position, 7))
        records = records_of(self._overlay)
        assert [key for key, _ in records].count(POSITION) == 1
        assert records[-1][0] == POSITION
        if step.dies_after is not None and step.dies_after < len(records):
            self._append(records[: step.dies_after], step.gap)
            self._begin()
            return
        self._append(records, step.gap)
        self.closed_at = last_offset(self.log) + 1
        self._overlay.commit({CHANGELOG: self.closed_at})
        self.truth = rows_of(self._overlay)

    def _append(self, records: Iterable[ChangelogRecord], gap: int) -> None:
        offset = last_offset(self.log) + 1
        for place, (key, row) in enumerate(records):
            self.log.append(Record(key, row, 0, (), "changelog", 0, offset + place + gap))


def last_offset(log: Sequence[Record]) -> int:
    return -1 if not log else log[-1].offset or 0


def rows_of(overlay: Overlay) -> Rows:
    """Every row of every store, by name."""
    found = {}
    for name in STORES:
        view = overlay.view(name)
        for key, row in view.range(view.prefix, view.prefix + b"\xff" * 9):
            found[name, key[len(view.prefix) :]] = row
    return found


def written(lives: Iterable[Step]) -> Writer:
    writer = Writer()
    for step in lives:
        writer.live(step)
    return writer


def compacted(log: Sequence[Record], upto: int) -> list[Record]:
    """Compact a changelog from the front, up to an offset."""
    newest = {record.key: record.offset for record in log if (record.offset or 0) < upto}
    return [
        record
        for record in log
        if (record.offset or 0) >= upto or newest[record.key] == record.offset
    ]


def restored(log: Sequence[Record], cut: Iterable[int], store: Store | None = None) -> Overlay:
    """Restore a changelog that comes in batches of these sizes, and then the rest."""
    overlay = Overlay(MemoryStore() if store is None else store, "pipeline")
    restoration = Restoration(overlay)
    start = 0
    for size in cut:
        restoration.take(log[start : start + size])
        start += size
    restoration.take(log[start:])
    return overlay


@given(steps, cuts)
def test_any_cut_restores_whole_commits_and_nothing_else(lives: list[Step], cut: list[int]) -> None:
    writer = written(lives)
    overlay = restored(writer.log, cut)
    assert rows_of(overlay) == writer.truth
    assert (overlay.position(CHANGELOG) or 0) == writer.closed_at


@given(steps, cuts, st.integers(0, 40))
def test_a_reader_of_a_part_reads_on_from_there(
    lives: list[Step], cut: list[int], first: int
) -> None:
    writer = written(lives)
    store = MemoryStore()
    position = restored(writer.log[:first], cut, store).position(CHANGELOG) or 0
    rest = [record for record in writer.log if (record.offset or 0) >= position]
    assert rows_of(restored(rest, cut, store)) == writer.truth


@given(steps, changes, cuts, st.data())
def test_compaction_takes_nothing_away_once_what_was_torn_is_written_again(
    lives: list[Step], changed: Changes, cut: list[int], data: st.DataObject
) -> None:
    writer = written([*lives, Step(changed, None, 0)])
    upto = data.draw(st.integers(0, last_offset(writer.log) + 1))
    assert rows_of(restored(compacted(writer.log, upto), cut)) == writer.truth


@given(steps)
def test_the_rows_left_open_are_those_behind_the_last_commit(lives: list[Step]) -> None:
    writer = written(lives)
    restoration = Restoration(Overlay(MemoryStore(), "pipeline"))
    restoration.take(writer.log)
    torn = {record.key for record in writer.log if (record.offset or 0) >= writer.closed_at}
    assert set(restoration.left_open()) == torn


class CutOff(MemoryStore):
    """The writer dies at some write; the rows before it are there."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_left = -1

    def write(self, drops: Sequence[Stretch], *rows: Mapping[bytes, bytes | None]) -> None:
        """Write, or die."""
        if self.writes_left == 0:
            raise InterruptedError
        self.writes_left -= 1
        super().write(drops, *rows)


@pytest.fixture(scope="module", autouse=True)
def _take_little_at_once() -> Iterator[None]:
    """Three rows at most, where more than a commit counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.services.state.changelog.PIECE_BYTES", 600)
        yield


@given(steps, changes, cuts, st.lists(st.integers(0, 6), max_size=4), st.data())
def test_a_reader_takes_a_commit_in_pieces_and_goes_on_where_it_was_cut_off(
    lives: list[Step],
    changed: Changes,
    cut: list[int],
    deaths: list[int],
    data: st.DataObject,
) -> None:
    writer = written([*lives, Step(changed, None, 0), *lives])
    left = compacted(writer.log, data.draw(st.integers(0, writer.closed_at)))
    store = CutOff()
    for writes_left in [*deaths, -1]:
        store.writes_left = writes_left
        overlay = Overlay(store, "pipeline")
        restoration, start = Restoration(overlay), reached(overlay)
        rest = [record for record in left if (record.offset or 0) >= start]
        # The next reader knows by the mark which rows count, and need not look again.
        is_told = not is_being_restored(overlay)
        try:
            for size in [*cut, len(rest)]:
                restoration.take(rest[:size], writer.closed_at if is_told else 0)
                rest = rest[size:]
        except InterruptedError:
            whole = overlay.position(CHANGELOG) == writer.closed_at
            assert is_being_restored(overlay) or not reached(overlay) or whole
    assert not is_being_restored(overlay)
    assert overlay.position(RESTORED_AT) is None
    assert rows_of(overlay) == writer.truth
    assert overlay.position(CHANGELOG) == writer.closed_at
    torn = {record.key for record in writer.log if (record.offset or 0) >= writer.closed_at}
    assert set(restoration.left_open()) == torn


def test_rows_that_count_need_not_wait_and_are_no_state_before_their_end() -> None:
    writer = written([Step({("a", b"%d" % at): b"row"}, None, 0) for at in range(1000)])
    left = compacted(writer.log, writer.closed_at)
    # The rows, and one end behind all of them.
    assert len(left) == 1001
    overlay = Overlay(MemoryStore(), "pipeline")
    restoration = Restoration(overlay)
    for start in range(0, 1000, 10):
        assert restoration.take(left[start : start + 10], writer.closed_at) == 0
        assert is_being_restored(overlay)
        assert overlay.position(CHANGELOG) is None
        assert reached(overlay) == last_offset(left[: start + 10]) + 1
    restoration.take(left[1000:], writer.closed_at)
    assert not is_being_restored(overlay)
    assert rows_of(overlay) == writer.truth


def test_an_end_that_was_compacted_away_meanwhile_is_not_taken_for_reached() -> None:
    writer = written([Step({("a", b"k"): b"old", ("a", b"other"): b"row"}, None, 0)])
    looked_at = writer.closed_at
    log = [record for record in writer.log if record.key not in {POSITION, b"\x01ak"}]
    writer.live(Step({("a", b"k"): b"new"}, None, 0))
    later = [record for record in writer.log if (record.offset or 0) >= looked_at]
    overlay = Overlay(MemoryStore(), "pipeline")
    restoration = Restoration(overlay)
    restoration.take(log, looked_at)
    assert is_being_restored(overlay)
    assert restoration.take(later[:1], looked_at) > 0
    assert is_being_restored(overlay)
    restoration.take(later[1:], looked_at)
    assert not is_being_restored(overlay)
    assert rows_of(overlay) == writer.truth


def test_an_empty_changelog_is_a_changelog_too() -> None:
    overlay = restored([], [])
    assert rows_of(overlay) == {}
    assert overlay.position(CHANGELOG) is None
    about = overlay.view(ABOUT)
    assert (read_position(about), read_stamp(about), read_purged(about)) == (None, None, 0)


@given(st.one_of(st.none(), st.binary(max_size=5)), st.binary(max_size=20))
@example(b"\x01\xff", b"row")
@example(b"\x00", b"row")
def test_a_key_is_taken_or_refused_and_never_an_error_of_another_kind(
    key: bytes | None, row: bytes
) -> None:
    log = [
        Record(key, row, 0, (), "changelog", 0, 0),
        Record(POSITION, b"\x00" * 16, 0, (), "changelog", 0, 1),
    ]
    try:
        overlay = restored(log, [])
    except StateCorrupt:
        return
    assert key is not None
    name, own = key[1 : 1 + key[0]].decode(), key[1 + key[0] :]
    view = overlay.view(name)
    assert view.get_many([view.prefix + own]) in ([row], [b"\x00" * 16])


STAMP = Stamp(1, "p", "t", [{"kind": "table"}])


def test_a_stamp_comes_back_and_one_of_a_later_version_can_be_told() -> None:
    about = Overlay(MemoryStore(), "pipeline").view(ABOUT)
    put_stamp(about, STAMP)
    assert read_stamp(about) == STAMP
    key = about.prefix + b"stamp"
    about.put_many({key: b'{"layout":2,"new":1,"operators":[],"pipeline":"p","topic":"t"}'})
    assert read_stamp(about) == Stamp(2, "p", "t", [])


@pytest.mark.parametrize("row", [b"", b"{", b"[]", b"1", b'{"layout":1}', b"\xff"])
def test_a_stamp_that_nobody_wrote_is_refused(row: bytes) -> None:
    about = Overlay(MemoryStore(), "pipeline").view(ABOUT)
    about.put_many({about.prefix + b"stamp": row})
    with pytest.raises(StateCorrupt):
        read_stamp(about)


@pytest.mark.parametrize(
    ("key", "read"),
    [(b"position", read_position), (b"cleaned", read_cleaned), (b"purged", read_purged)],
)
def test_a_position_of_another_length_is_refused(
    key: bytes, read: Callable[[StoreView], object]
) -> None:
    about = Overlay(MemoryStore(), "pipeline").view(ABOUT)
    about.put_many({about.prefix + key: b"\x00" * 7})
    with pytest.raises(StateCorrupt, match="7 bytes"):
        read(about)
