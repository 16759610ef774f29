"""State that any earlier version wrote is read, and goes on; what is damaged is never read."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.contracts.errors import StateCorrupt, StateLayoutNewer
from headrace.contracts.record import Record
from headrace.services.operators.rows import RECORD_FORMAT, decode_record, encode_records
from headrace.services.operators.updates import UPDATE_FORMAT
from headrace.services.state import layout
from headrace.services.state.overlay import Overlay
from tests.formats.states import (
    FOLDER,
    PIPELINE,
    STATES,
    Rows,
    Service,
    Unswept,
    golden_files,
    read_rows,
    rows_of,
    store_with,
    written_today,
)

GOLDEN = sorted(FOLDER.glob("*.json"))
every_state = pytest.mark.parametrize("name", STATES)
every_file = pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
ITEMS = layout.row_prefix(0) + b"\x01"
REFUSED = (StateCorrupt, StateLayoutNewer)
RECORDS = ("reorder", "reorder-weighed")
UPDATES = ("suppress-final", "suppress-spilled")
PIECES = {"distinct-session": 20, "aggregate-session": 20, "aggregate-sliding": 20}
"""States whose rows are pieces one behind the other, and how long the head of a piece is."""


def state_of(path: Path) -> str:
    """The state that a golden file is of."""
    return path.stem.partition("-")[2]


def items_of(name: str, rows: Rows) -> dict[bytes, bytes]:
    """Rows of the first store's items that are read: what left by time stays for a while."""
    items = {key: row for key, row in rows.items() if key.startswith(ITEMS)}
    read = {key: row for key, row in items.items() if believed(name, rows, key, [b""]) == []}
    assert read, "no row is read, so nothing is tested"
    return read


def go_on(name: str, rows: Rows) -> list[object]:
    """Return the output of a new service over these rows for the records that come next."""
    return Service(STATES[name].policies, store_with(rows)).take(STATES[name].after)


@every_state
def test_every_state_has_golden_bytes(name: str) -> None:
    numbers = [int(path.stem.partition("-")[0]) for path in golden_files(name)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers, f"run `python -m tests.formats`, and commit what it writes for {name}"


def test_no_golden_bytes_are_left_over() -> None:
    assert [path.name for path in GOLDEN if state_of(path) not in STATES] == []


@every_file
def test_a_service_over_golden_rows_goes_on_as_the_one_that_wrote_them(path: Path) -> None:
    state = STATES[state_of(path)]
    store = Unswept()
    original = Service(state.policies, store)
    original.take(state.before)
    golden = store_with(read_rows(path))
    left = Service(state.policies, golden).take(state.after)
    assert left == original.take(state.after)
    assert any(step.records for step in left[::3]), "nothing left, so nothing was seen"  # type: ignore[attr-defined]
    assert rows_of(golden) == rows_of(store)


@every_state
def test_rows_are_written_in_the_latest_format(name: str) -> None:
    path = golden_files(name)[-1]
    golden, today = read_rows(path), written_today(name)
    different = {
        key.hex() for key in golden.keys() | today.keys() if golden.get(key) != today.get(key)
    }
    assert not different, (
        f"{name} writes other bytes than {path.name}. If that is wanted, give its rows a new"
        " format (a new first byte, or a new version in services/state/layout.py), keep reading"
        " the old one, and run `python -m tests.formats`, which writes a new file beside it."
    )


@every_file
def test_every_golden_file_has_the_directory_that_finds_its_rows(path: Path) -> None:
    rows = read_rows(path)
    assert layout.unpack_version(rows[layout.LAYOUT_KEY]) <= layout.LAYOUT_VERSION
    assert rows[layout.PIPELINE_KEY] == PIPELINE.encode()
    overlay = Overlay(store_with(rows), PIPELINE)
    before = STATES[state_of(path)].before
    assert overlay.position("clicks") == before[-1].offset
    prefixes = {
        overlay.view(policy.store or "").prefix for policy in STATES[state_of(path)].policies
    }
    of_operators = {key[:3] for key in rows if not key.startswith(b"\x00")}
    assert of_operators == prefixes


def prefixes_of(row: bytes) -> list[bytes]:
    """A row cut short anywhere."""
    return [row[:size] for size in range(len(row))]


def believed(name: str, rows: Rows, key: bytes, damaged: list[bytes]) -> list[bytes]:
    """The damaged rows that are not refused; an error that is not ours ends the test."""
    taken = []
    for row in damaged:
        try:
            go_on(name, {**rows, key: row})
        except REFUSED:
            continue
        taken.append(row)
    return taken


@pytest.mark.parametrize(
    "path", [p for p in GOLDEN if state_of(p) in RECORDS + UPDATES], ids=lambda path: path.stem
)
def test_a_held_row_cut_short_anywhere_is_refused(path: Path) -> None:
    name, rows = state_of(path), read_rows(path)
    for key, row in items_of(name, rows).items():
        assert believed(name, rows, key, prefixes_of(row)) == []


@pytest.mark.parametrize(
    "path", [p for p in GOLDEN if state_of(p) in RECORDS + UPDATES], ids=lambda path: path.stem
)
def test_a_held_row_with_bytes_behind_it_is_refused(path: Path) -> None:
    name, rows = state_of(path), read_rows(path)
    for key, row in items_of(name, rows).items():
        assert believed(name, rows, key, [row + b"\x00"]) == []


@pytest.mark.parametrize("name", RECORDS + UPDATES)
def test_a_held_row_of_a_newer_format_says_that_it_is_newer(name: str) -> None:
    rows = read_rows(golden_files(name)[-1])
    newer = (UPDATE_FORMAT if name in UPDATES else RECORD_FORMAT) + 1
    for key in items_of(name, rows):
        with pytest.raises(StateLayoutNewer, match=f"format {newer}, .* upgrade headrace"):
            go_on(name, {**rows, key: bytes([newer]) + b"whatever comes then"})


@pytest.mark.parametrize("name", RECORDS + UPDATES)
def test_format_0_was_never_written(name: str) -> None:
    rows = read_rows(golden_files(name)[-1])
    for key, row in items_of(name, rows).items():
        with pytest.raises(StateCorrupt, match="no format"):
            go_on(name, {**rows, key: b"\x00" + row[1:]})


@pytest.mark.parametrize("name", STATES)
def test_no_damage_to_any_row_is_an_error_of_another_kind(name: str) -> None:
    rows = read_rows(golden_files(name)[-1])
    for key, row in rows.items():
        if not key.startswith(b"\x00"):
            believed(name, rows, key, prefixes_of(row))


@pytest.mark.parametrize("name", PIECES)
def test_pieces_cut_short_are_refused_unless_whole_ones_are_left(name: str) -> None:
    rows = read_rows(golden_files(name)[-1])
    read = 0
    for key, row in rows.items():
        taken = believed(name, rows, key, prefixes_of(row)) if key.startswith(ITEMS) else []
        # A row that no record asks for is not read, so nothing of it is refused.
        if key.startswith(ITEMS) and len(taken) < len(row):
            assert {len(one) for one in taken} <= piece_starts(row, PIECES[name])
            read += 1
    assert read, "no row is read, so nothing is tested"


def piece_starts(row: bytes, head: int) -> set[int]:
    """Where the pieces of a row begin; each ends its head with the length of what follows."""
    starts = {0}
    place = 0
    while place < len(row):
        length = int.from_bytes(row[place + head - 4 : place + head], "big", signed=True)
        place += head + max(0, length)
        starts.add(place)
    return starts


def test_a_state_of_a_newer_layout_is_refused() -> None:
    rows = read_rows(golden_files("chain")[-1])
    rows[layout.LAYOUT_KEY] = layout.pack_version(layout.LAYOUT_VERSION + 1)
    with pytest.raises(StateLayoutNewer, match="upgrade headrace"):
        go_on("chain", rows)


RECORD = Record(b"k", b"value", 12, (("\u00e9", b"1"), ("n", None)), "t\u00f6pic", 1, 3)


def test_a_record_with_any_byte_changed_is_read_or_refused() -> None:
    row = encode_records([RECORD])[0]
    for place in range(len(row)):
        for flipped in (0x01, 0x40, 0x80):
            changed = row[:place] + bytes([row[place] ^ flipped]) + row[place + 1 :]
            try:
                assert decode_record(RECORD.key, changed) != RECORD
            except REFUSED:
                continue


def test_a_record_comes_back_as_it_was() -> None:
    assert decode_record(RECORD.key, encode_records([RECORD])[0]) == RECORD
