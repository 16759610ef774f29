"""Memory and RocksDB are one kind of store: whatever is done to both, both answer the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import StateUnavailable
from headrace.services.state.memory import MemoryStore
from headrace.services.state.rocks import RocksMemory, RocksStore
from headrace.services.state.store import Store, Stretch

ALL: Stretch = (b"", b"\xff" * 8)
_MEMORY = RocksMemory(8 << 20)
# Few bytes, so that writes, drops and questions meet; 0x00 and 0xff, where order goes wrong.
keys = st.lists(st.sampled_from((b"\x00", b"\x01", b"a", b"\xff")), max_size=3).map(b"".join)
stretches = st.tuples(keys, keys).map(lambda ends: (min(ends), max(ends)))
rows = st.none() | st.binary(max_size=3)


class Write(NamedTuple):
    """One atomic write."""

    drops: list[Stretch]
    rows: dict[bytes, bytes | None]


class Get(NamedTuple):
    """One look-up of some keys."""

    keys: list[bytes]


class Range(NamedTuple):
    """One walk over a stretch."""

    stretch: Stretch


class Reopen(NamedTuple):
    """The process ends, and another begins."""


Deed = Write | Get | Range | Reopen
deeds = st.lists(
    st.one_of(
        st.builds(Write, st.lists(stretches, max_size=2), st.dictionaries(keys, rows, max_size=5)),
        st.builds(Write, st.lists(stretches, max_size=2), st.dictionaries(keys, rows, max_size=5)),
        st.builds(Get, st.lists(keys, max_size=5)),
        st.builds(Range, stretches),
        st.builds(Reopen),
    ),
    max_size=12,
)


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    opened: Store = (
        MemoryStore() if request.param == "memory" else RocksStore(tmp_path / "state", _MEMORY)
    )
    yield opened
    opened.close()


def _answer(store: Store, deed: Deed) -> object:
    if isinstance(deed, Write):
        store.write(deed.drops, deed.rows)
        return None
    if isinstance(deed, Get):
        return store.get_many(deed.keys)
    return list(store.range(*deed.stretch)) if isinstance(deed, Range) else None


def _answers(store: Store, done: list[Deed], reopen: Callable[[Store], Store]) -> list[object]:
    """Return a store's answer to each deed, and all its rows at the end."""
    answers = []
    for deed in done:
        if isinstance(deed, Reopen):
            store.close()
            store = reopen(store)
        answers.append(_answer(store, deed))
    answers.append(list(store.range(*ALL)))
    store.close()
    return answers


@given(deeds)
def test_both_answer_the_same(done: list[Deed]) -> None:
    in_memory = _answers(MemoryStore(), done, lambda store: store)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        on_disk = _answers(RocksStore(path, _MEMORY), done, lambda _: RocksStore(path, _MEMORY))
    assert on_disk == in_memory


@given(deeds)
def test_memory_is_a_dictionary_that_knows_its_order(done: list[Deed]) -> None:
    expected: dict[bytes, bytes] = {}
    store = MemoryStore()
    for deed in done:
        _answer(store, deed)
        if isinstance(deed, Write):
            expected = {
                key: row
                for key, row in expected.items()
                if not any(start <= key < end for start, end in deed.drops)
            }
            expected |= {key: row for key, row in deed.rows.items() if row is not None}
            for key in [key for key, row in deed.rows.items() if row is None]:
                expected.pop(key, None)
        assert list(store.range(*ALL)) == sorted(expected.items())


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.get_many([b"a"]) == [None]
    assert list(store.range(*ALL)) == []


def test_no_keys_have_no_rows(store: Store) -> None:
    store.write([], {b"a": b"1"})
    assert store.get_many([]) == []


def test_a_write_of_nothing_is_a_write(store: Store) -> None:
    store.write([], {})
    assert list(store.range(*ALL)) == []


def test_a_key_asked_for_twice_is_answered_twice(store: Store) -> None:
    store.write([], {b"a": b"1"})
    assert store.get_many([b"a", b"b", b"a"]) == [b"1", None, b"1"]


def test_an_empty_row_is_not_a_missing_one(store: Store) -> None:
    store.write([], {b"a": b""})
    assert store.get_many([b"a"]) == [b""]
    assert list(store.range(*ALL)) == [(b"a", b"")]


def test_an_empty_key_is_a_key(store: Store) -> None:
    store.write([], {b"": b"1"})
    assert store.get_many([b""]) == [b"1"]
    assert next(store.range(*ALL)) == (b"", b"1")


def test_ranges_are_in_the_order_of_unsigned_bytes(store: Store) -> None:
    ordered = [b"", b"\x00", b"\x00\x00", b"\x00\xff", b"\x01", b"a", b"a\x00", b"ab", b"\x80"]
    store.write([], dict.fromkeys(reversed(ordered), b""))
    assert [key for key, _ in store.range(*ALL)] == ordered


def test_a_range_has_its_start_and_not_its_end(store: Store) -> None:
    store.write([], {b"a": b"1", b"b": b"2", b"c": b"3"})
    assert [key for key, _ in store.range(b"a", b"c")] == [b"a", b"b"]


@pytest.mark.parametrize("end", [b"b", b"a", b""])
def test_a_range_that_ends_where_it_starts_or_before_is_empty(store: Store, end: bytes) -> None:
    store.write([], {b"a": b"1", b"b": b"2"})
    assert list(store.range(b"b", end)) == []


def test_drops_come_before_the_rows_of_the_same_write(store: Store) -> None:
    store.write([], {b"a": b"old", b"b": b"old"})
    store.write([(b"a", b"c")], {b"a": b"new"})
    assert list(store.range(*ALL)) == [(b"a", b"new")]


def test_a_dropped_row_can_be_written_again(store: Store) -> None:
    store.write([], {b"a": b"1"})
    store.write([(b"a", b"b")], {})
    store.write([], {b"a": b"2"})
    assert store.get_many([b"a"]) == [b"2"]


def test_a_range_is_as_it_was_when_its_first_row_was_asked_for(store: Store) -> None:
    store.write([], {b"a": b"1", b"b": b"2"})
    walk = store.range(*ALL)
    assert next(walk) == (b"a", b"1")
    store.write([(b"b", b"c")], {b"aa": b"3"})
    assert list(walk) == [(b"b", b"2")]


def test_a_range_need_not_be_walked_to_its_end(store: Store) -> None:
    store.write([], {b"a": b"1", b"b": b"2"})
    walk = store.range(*ALL)
    assert next(walk) == (b"a", b"1")
    del walk
    store.write([], {b"a": None})
    assert store.get_many([b"a", b"b"]) == [None, b"2"]


def test_rows_of_a_megabyte_come_back(store: Store) -> None:
    large = {b"%d" % number: bytes([number]) * (1 << 20) for number in range(5)}
    store.write([], dict(large))
    assert store.get_many(list(large)) == list(large.values())
    assert dict(store.range(*ALL)) == large


def test_a_key_of_64_kibibytes_comes_back(store: Store) -> None:
    key = b"k" * (64 << 10)
    store.write([], {key: b"1"})
    assert store.get_many([key, key + b"k"]) == [b"1", None]
    assert list(store.range(key, key + b"\x00")) == [(key, b"1")]


def test_rows_that_are_on_disk_and_in_the_write_buffer_are_one_range(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "state", _MEMORY)
    store.write([], {b"a": b"1", b"c": b"3", b"d": b"4"})
    store.flush()
    store.write([(b"d", b"e")], {b"b": b"2", b"c": None})
    assert list(store.range(*ALL)) == [(b"a", b"1"), (b"b", b"2")]
    store.flush()
    assert store.get_many([b"a", b"b", b"c", b"d"]) == [b"1", b"2", None, None]
    store.close()


def test_a_write_that_cannot_be_done_is_not_done_at_all(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "state", _MEMORY)
    store.write([], {b"a": b"1"})
    with pytest.raises(ValueError, match="bytes"):
        store.write([(b"a", b"b")], {b"b": b"2", b"c": "no bytes"})  # type: ignore[dict-item]
    assert list(store.range(*ALL)) == [(b"a", b"1")]
    store.close()


def test_a_parent_folder_that_is_missing_is_made(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "deeper" / "state"
    RocksStore(path, _MEMORY).close()
    assert path.is_dir()


def test_a_parent_that_is_a_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StateUnavailable, match="check that the disk has room"):
        RocksStore(tmp_path / "file" / "state", _MEMORY)
