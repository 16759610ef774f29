"""A changelog that any earlier version wrote is restored, and its stamp is understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.contracts.record import Record
from headrace.services.state.changelog import (
    ABOUT,
    Position,
    read_position,
    read_purged,
    read_stamp,
)
from headrace.services.state.partition import PartitionState
from headrace.services.state.rocks import RocksMemory
from headrace.services.state.stamps import check_stamp, stamp_of
from tests.formats.changelogs import (
    CLEANED,
    POSITION,
    PURGED,
    SPEC,
    golden_files,
    read_records,
    written_today,
)

every_file = pytest.mark.parametrize("path", golden_files(), ids=lambda path: path.stem)


def test_rows_are_written_in_the_latest_format() -> None:
    files = golden_files()
    assert [path.name for path in files] == [f"{at + 1}-commit.json" for at in range(len(files))]
    assert files, "run `python -m tests.formats`, and commit what it writes"
    # Rows of one commit stand in no order, but for the position, which ends it.
    golden, today = read_records(files[-1]), written_today()
    assert golden[-1] == today[-1]
    assert dict(golden) == dict(today), (
        "a changelog has other bytes than before. If that is wanted, keep reading the old ones,"
        " and run `python -m tests.formats`, which writes a new file beside them."
    )


@every_file
def test_a_golden_changelog_is_restored_whole(path: Path, tmp_path: Path) -> None:
    records = read_records(path)
    state = PartitionState(tmp_path / "0", SPEC.pipeline, RocksMemory(8 << 20), 0)
    try:
        restoration = state.restoration()
        restoration.take(
            Record(key, row, 0, (), "changelog", 0, at) for at, (key, row) in enumerate(records)
        )
        about = state.overlay.view(ABOUT)
        assert restoration.left_open() == []
        assert state.changelog_position == len(records)
        assert read_position(about) == POSITION == Position(state.position or 0, state.time_ms)
        assert read_purged(about) == PURGED
        assert state.cleaned_offset == (CLEANED if b"\x00cleaned" in dict(records) else None)
        for key, row in records:
            view = state.overlay.view(key[1 : 1 + key[0]].decode())
            assert view.get_many([view.prefix + key[1 + key[0] :]]) == [row]
        (hop,) = SPEC.hops()
        stamp = read_stamp(about)
        assert stamp is not None
        assert (stamp.pipeline, stamp.topic) == (SPEC.pipeline, SPEC.source.topic)
        # Its own pipeline is taken, whatever options there are by now.
        check_stamp(state, stamp_of(SPEC, hop))
    finally:
        state.close()
