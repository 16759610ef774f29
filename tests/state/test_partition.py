"""A partition's database: what was committed is there again, what cannot be trusted is rebuilt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.contracts.errors import (
    StateCorrupt,
    StateLayoutNewer,
    StateLocked,
    StateOfAnotherPipeline,
    StateUnavailable,
)
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.contracts.topics import TOMBSTONES_KEPT_MS
from headrace.services.state import layout
from headrace.services.state.changelog import PIECE_BYTES, POSITION, Stamp, records_of
from headrace.services.state.partition import PartitionState
from headrace.services.state.rocks import RocksMemory, RocksStore

NOW_MS = 1_700_000_000_000
STAMP = Stamp(1, "clicks", "raw", [{"kind": "table", "name": "table"}])


@contextmanager
def opened(
    folder: Path, pipeline: str = "clicks", now_ms: int = NOW_MS
) -> Iterator[PartitionState]:
    state = PartitionState(folder, pipeline, RocksMemory(8 << 20), now_ms)
    try:
        yield state
    finally:
        state.close()


def put(state: PartitionState, row: bytes) -> None:
    view = state.overlay.view("table")
    view.put_many({view.prefix + b"key": row})


def row_of(state: PartitionState) -> bytes | None:
    view = state.overlay.view("table")
    return view.get_many([view.prefix + b"key"])[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A database with one commit."""
    folder = tmp_path / "clicks" / "state" / "0"
    with opened(folder) as state:
        assert is_new(state)
        put(state, b"row")
        state.stamp_with(STAMP)
        state.reach(41, 5_000)
        state.commit(7, NOW_MS)
    return folder


def is_new(state: PartitionState) -> bool:
    nothing = (None, NO_TIME_MS, 0, None, None, None)
    found = (state.position, state.time_ms, state.changelog_position, state.stamp, row_of(state))
    return (*found, state.cleaned_offset) == nothing


def test_committed_rows_are_there_again(folder: Path) -> None:
    with opened(folder) as state:
        assert state.rebuilt_because is None
        assert (state.position, state.time_ms, state.changelog_position) == (41, 5_000, 7)
        assert state.stamp == STAMP
        assert row_of(state) == b"row"


def test_the_last_cleaned_record_is_known_until_there_is_another(folder: Path) -> None:
    for cleaned, known in ((3, 3), (None, 3), (9, 9)):
        with opened(folder) as state:
            state.reach(50, 9_000, cleaned)
            state.commit(8, NOW_MS)
        with opened(folder) as state:
            assert state.cleaned_offset == known


def test_the_last_cleaned_record_is_forgotten_with_the_next_commit(folder: Path) -> None:
    for commits in (False, True):
        with opened(folder) as state:
            state.reach(50, 9_000, 3)
            state.commit(8, NOW_MS)
            state.know_cleaned(None)
            assert state.cleaned_offset is None
            if commits:
                state.commit(9, NOW_MS)
        with opened(folder) as state:
            assert state.cleaned_offset == (None if commits else 3)


def test_uncommitted_rows_are_not_there(folder: Path) -> None:
    with opened(folder) as state:
        put(state, b"another")
        state.reach(99, 9_000)
        state.stamp_with(STAMP._replace(pipeline="other"))
        assert (state.position, row_of(state)) == (99, b"another")
    with opened(folder) as state:
        assert (state.position, state.time_ms, row_of(state)) == (41, 5_000, b"row")
        assert state.stamp == STAMP


def test_a_stamp_that_is_the_same_is_not_written_again(folder: Path) -> None:
    with opened(folder) as state:
        state.stamp_with(STAMP)
        assert records_of(state.overlay) == []
        state.stamp_with(STAMP._replace(topic="other"))
        assert [key for key, _ in records_of(state.overlay)] == [b"\x00stamp"]


def test_a_database_of_another_changelog_is_put_aside_and_said(folder: Path) -> None:
    with opened_of(folder, "one") as state:
        # It was there before anybody wrote down whose it is, and is taken.
        assert (state.rebuilt_because, row_of(state)) == (None, b"row")
        state.keep_up(NOW_MS)
    with opened_of(folder, "one") as state:
        assert (state.rebuilt_because, row_of(state)) == (None, b"row")
    for changelog in ("two", "three"):
        with opened_of(folder, changelog) as state:
            assert is_new(state)
            assert state.rebuilt_because is not None
            assert f"{folder}.aside, and may be deleted" in state.rebuilt_because
            put(state, changelog.encode())
            state.commit(7, NOW_MS)
    with opened(folder.with_name("0.aside")) as state:
        assert row_of(state) == b"two"
    with opened_of(folder, None) as state:
        assert (state.rebuilt_because, row_of(state)) == (None, b"three")


@contextmanager
def opened_of(folder: Path, changelog_id: str | None) -> Iterator[PartitionState]:
    state = PartitionState(folder, "clicks", RocksMemory(8 << 20), NOW_MS, changelog_id)
    try:
        yield state
    finally:
        state.close()


def test_half_a_restore_goes_on_there_and_is_no_state(folder: Path) -> None:
    rows = [Record(b"\x05tablekey", b"later", 0, (), "changelog", 0, at) for at in (7, 8)]
    with opened(folder) as state:
        state.restoration().take(rows[:1], counts_before=10)
    with opened(folder) as state:
        assert state.changelog_position == 8
        with pytest.raises(StateCorrupt, match=r"whole at offset 10 of the changelog c/0, which"):
            state.check_whole("c/0")
        end = Record(POSITION, b"\x00" * 16, 0, (), "changelog", 0, 9)
        state.restoration().take([rows[1], end])
        state.check_whole("c/0")
        assert (state.changelog_position, state.position, row_of(state)) == (10, 0, b"later")


def test_half_a_restore_of_the_first_commit_is_begun_anew_if_that_is_purged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, large = tmp_path / "0", b"r" * PIECE_BYTES
    rows = [Record(b"\x05tablekey%d" % at, large, 0, (), "changelog", 0, at) for at in range(3)]
    with opened(folder) as state:
        restoration, take_up = state.restoration(), state.overlay.take_up
        written: list[int] = []

        def take_up_one(*piece: Any) -> None:
            if written:
                raise KeyboardInterrupt
            written.append(len(piece[0]))
            take_up(*piece)

        restoration.take(rows)
        monkeypatch.setattr(state.overlay, "take_up", take_up_one)
        with pytest.raises(KeyboardInterrupt):
            restoration.take([Record(POSITION, b"\x00" * 16, 0, (), "changelog", 0, 3)])
        assert written == [1]
    with opened(folder) as state:
        assert state.changelog_position == 0
        state.begin_at(5)
        assert state.changelog_position == 5
        view = state.overlay.view("table")
        assert list(view.range(view.prefix, view.prefix + b"\xff")) == []


def test_a_folder_that_cannot_be_put_aside_is_a_sentence(folder: Path) -> None:
    with opened_of(folder, "one") as state:
        state.keep_up(NOW_MS)
    folder.with_name("0.aside").write_text("no folder")
    with (
        pytest.raises(StateUnavailable, match="the folder may be written to"),
        opened_of(folder, "two"),
    ):
        pass


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST", "CURRENT gone"])
def test_a_damaged_database_is_begun_anew_and_says_why(folder: Path, name: str) -> None:
    (damaged,) = folder.glob(name.split(maxsplit=1)[0] + "*")
    if name.endswith("gone"):
        for path in folder.glob("MANIFEST*"):
            path.unlink()
    else:
        damaged.write_bytes(b"damaged")
    with opened(folder) as state:
        assert state.rebuilt_because is not None
        assert str(folder) in state.rebuilt_because
        assert is_new(state)
        put(state, b"again")
        state.commit(9, NOW_MS)
    with opened(folder) as state:
        assert state.rebuilt_because is None
        assert row_of(state) == b"again"


def test_rows_about_the_whole_that_nobody_wrote_begin_it_anew(folder: Path) -> None:
    store = RocksStore(folder, RocksMemory(8 << 20))
    store.write([], {layout.LAYOUT_KEY: b"\x00"})
    store.close()
    with opened(folder) as state:
        assert state.rebuilt_because is not None
        assert is_new(state)


def test_a_database_is_trusted_for_half_as_long_as_tombstones_are_kept(folder: Path) -> None:
    half_ms = TOMBSTONES_KEPT_MS // 2
    with opened(folder, now_ms=NOW_MS + half_ms) as state:
        assert state.rebuilt_because is None
        assert row_of(state) == b"row"
    with opened(folder, now_ms=NOW_MS + half_ms + 1) as state:
        assert state.rebuilt_because == "it is older than the changelog's tombstones"
        assert is_new(state)


def test_a_database_from_a_clock_far_ahead_is_not_trusted_for_its_age_is_unknown(
    folder: Path,
) -> None:
    half_ms = TOMBSTONES_KEPT_MS // 2
    with opened(folder, now_ms=NOW_MS - half_ms) as state:
        assert state.rebuilt_because is None
        assert row_of(state) == b"row"
    with opened(folder, now_ms=NOW_MS - half_ms - 1) as state:
        assert state.rebuilt_because is not None
        assert is_new(state)


def test_a_folder_of_another_pipeline_is_left_alone(folder: Path) -> None:
    with (
        pytest.raises(StateOfAnotherPipeline, match="belongs to pipeline `clicks`, not `views`"),
        opened(folder, "views"),
    ):
        pass
    with opened(folder), pytest.raises(StateLocked), opened(folder):
        pass
    store = RocksStore(folder, RocksMemory(8 << 20))
    store.write([], {layout.LAYOUT_KEY: layout.pack_version(layout.LAYOUT_VERSION + 1)})
    store.close()
    with pytest.raises(StateLayoutNewer), opened(folder):
        pass
    # Each refusal let go of the lock, and took nothing away.
    store = RocksStore(folder, RocksMemory(8 << 20))
    store.write([], {layout.LAYOUT_KEY: layout.pack_version(layout.LAYOUT_VERSION)})
    store.close()
    with opened(folder) as state:
        assert row_of(state) == b"row"
