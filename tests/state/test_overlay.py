"""The overlay: operators see their changes, nobody else does before they are committed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import StateCorrupt, StateLayoutNewer, StateOfAnotherPipeline
from headrace.services.state import layout
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay, StoreView
from headrace.services.state.store import Store

ALL = (b"", b"\xff" * 8)


def row_key(view: StoreView, key: bytes) -> bytes:
    """A view takes whole row keys."""
    return view.prefix + key


def put(view: StoreView, **rows: bytes | None) -> None:
    """Set rows by the names of their keys."""
    view.put_many({view.prefix + name.encode(): row for name, row in rows.items()})


def rows_of(view: StoreView, start: bytes = b"", end: bytes = b"\xff" * 8) -> dict[str, bytes]:
    """Return a range of a view without prefixes; keys are in order or the test fails."""
    found = list(view.range(view.prefix + start, view.prefix + end))
    assert [key for key, _ in found] == sorted(key for key, _ in found)
    return {key.removeprefix(view.prefix).decode(): row for key, row in found}


def everything(store: Store) -> list[tuple[bytes, bytes]]:
    """Every row of a store, ours and the directory's."""
    return list(store.range(*ALL))


def committed(**rows: bytes | None) -> tuple[MemoryStore, Overlay, StoreView]:
    """A store with one view, and these rows in it."""
    store = MemoryStore()
    overlay = Overlay(store, "clicks")
    view = overlay.view("ids")
    put(view, **rows)
    overlay.commit({})
    return store, overlay, view


def changes(overlay: Overlay) -> list[tuple[str, bytes, bytes | None]]:
    """Return the rows that would go to the changelog."""
    return [
        (store, key[length:], row)
        for store, length, rows in overlay.changed_stores()
        for key, row in rows.items()
    ]


def test_a_view_sees_its_changes_at_once_and_the_store_sees_none() -> None:
    store, _, view = committed(a=b"1", b=b"2", c=b"3")
    before = everything(store)
    put(view, a=b"changed", b=None, d=b"4")
    assert view.get_many([row_key(view, key) for key in (b"a", b"b", b"c", b"d", b"e")]) == [
        b"changed", None, b"3", b"4", None,
    ]  # fmt: skip
    assert rows_of(view) == {"a": b"changed", "c": b"3", "d": b"4"}
    assert everything(store) == before


def test_a_range_of_a_view_has_its_start_and_not_its_end() -> None:
    _, _, view = committed(a=b"1", b=b"2", d=b"4")
    put(view, c=b"3", e=b"5")
    assert rows_of(view, b"b", b"e") == {"b": b"2", "c": b"3", "d": b"4"}


def test_no_keys_have_no_rows_with_changes_and_without() -> None:
    _, _, view = committed(a=b"1")
    assert view.get_many([]) == []
    put(view, b=b"2")
    assert view.get_many([]) == []


def test_a_drop_is_seen_at_once_and_the_store_does_not_see_it() -> None:
    store, _, view = committed(a=b"1", b=b"2", c=b"3")
    before = everything(store)
    put(view, b=b"changed", ab=b"new")
    view.drop(row_key(view, b"a"), row_key(view, b"c"))
    assert view.get_many([row_key(view, key) for key in (b"a", b"ab", b"b", b"c")]) == [
        None, None, None, b"3",
    ]  # fmt: skip
    assert rows_of(view) == {"c": b"3"}
    assert everything(store) == before


def test_a_row_put_after_its_drop_stands() -> None:
    store, overlay, view = committed(a=b"1", b=b"2")
    view.drop(row_key(view, b"a"), row_key(view, b"c"))
    put(view, a=b"again")
    assert rows_of(view) == {"a": b"again"}
    overlay.commit({})
    assert rows_of(Overlay(store, "clicks").view("ids")) == {"a": b"again"}


def test_drops_reach_the_store_with_the_commit() -> None:
    store, overlay, view = committed(a=b"1", b=b"2", c=b"3")
    view.drop(row_key(view, b"a"), row_key(view, b"b"))
    put(view, b=None)
    overlay.commit({})
    assert rows_of(Overlay(store, "clicks").view("ids")) == {"c": b"3"}
    assert not view.drops


def test_changes_give_each_row_once_and_without_prefix() -> None:
    _, overlay, view = committed(a=b"1")
    other = overlay.view("held")
    put(view, a=b"2")
    put(view, a=b"3", b=None)
    put(other, a=b"4")
    assert sorted(changes(overlay)) == [
        ("held", b"a", b"4"),
        ("ids", b"a", b"3"),
        ("ids", b"b", None),
    ]


def test_a_dropped_row_is_in_no_change() -> None:
    _, overlay, view = committed(a=b"1", b=b"2")
    put(view, a=b"changed", c=b"new")
    view.drop(row_key(view, b"a"), row_key(view, b"z"))
    assert changes(overlay) == []


def test_a_commit_leaves_no_changes() -> None:
    _, overlay, view = committed(a=b"1")
    put(view, b=b"2")
    overlay.commit({"clicks.raw": 7})
    assert changes(overlay) == []
    assert not view.pending


def test_discarded_changes_never_were() -> None:
    store, overlay, view = committed(a=b"1", b=b"2")
    before = everything(store)
    put(view, a=b"changed", c=b"new")
    view.drop(row_key(view, b"b"), row_key(view, b"c"))
    overlay.discard()
    assert rows_of(view) == {"a": b"1", "b": b"2"}
    assert changes(overlay) == []
    overlay.commit({})
    assert everything(store) == before


def test_two_views_do_not_see_each_other() -> None:
    _, overlay, view = committed(a=b"1")
    other = overlay.view("held")
    put(other, a=b"other", b=b"other")
    assert rows_of(view) == {"a": b"1"}
    other.drop(row_key(other, b""), row_key(other, b"\xff"))
    assert rows_of(view) == {"a": b"1"}
    assert rows_of(other) == {}


def test_a_store_has_one_view() -> None:
    _, overlay, view = committed(a=b"1")
    assert overlay.view("ids") is view


def test_numbers_stay_when_a_pipeline_grows_and_stores_open_in_another_order() -> None:
    store = MemoryStore()
    overlay = Overlay(store, "clicks")
    first = {name: overlay.view(name).prefix for name in ("reorder", "ids")}
    overlay.commit({})
    grown = Overlay(store, "clicks")
    again = {name: grown.view(name).prefix for name in ("new", "ids", "newer", "reorder")}
    assert {name: again[name] for name in first} == first
    assert len(set(again.values())) == 4
    grown.commit({})
    assert Overlay(store, "clicks").view("newer").prefix == again["newer"]


def test_the_number_of_a_store_that_is_not_opened_any_more_is_not_given_again() -> None:
    store = MemoryStore()
    overlay = Overlay(store, "clicks")
    removed = overlay.view("removed").prefix
    overlay.commit({})
    assert Overlay(store, "clicks").view("new").prefix != removed


def test_a_number_that_was_never_committed_was_never_given() -> None:
    store = MemoryStore()
    Overlay(store, "clicks").view("lost")
    overlay = Overlay(store, "clicks")
    assert overlay.view("kept").prefix == layout.row_prefix(0)


def test_positions_are_those_of_the_last_commit() -> None:
    store = MemoryStore()
    overlay = Overlay(store, "clicks")
    assert overlay.position("clicks.raw") is None
    overlay.commit({"clicks.raw": 12, "changelog": -1})
    assert (overlay.position("clicks.raw"), overlay.position("changelog")) == (12, -1)
    overlay.commit({"clicks.raw": 13})
    again = Overlay(store, "clicks")
    assert (again.position("clicks.raw"), again.position("changelog")) == (13, -1)
    assert again.position("click") is None


def test_restored_rows_are_in_the_store_at_once() -> None:
    store = MemoryStore()
    overlay = Overlay(store, "clicks")
    ids, held = overlay.view("ids").prefix, overlay.view("held").prefix
    overlay.take_up({ids + b"a": b"4", held + b"a": b"2", ids + b"b": None}, {"changelog": 5})
    again = Overlay(store, "clicks")
    assert rows_of(again.view("ids")) == {"a": b"4"}
    assert rows_of(again.view("held")) == {"a": b"2"}
    assert again.position("changelog") == 5


def test_another_pipeline_is_refused() -> None:
    store, _, _ = committed(a=b"1")
    with pytest.raises(StateOfAnotherPipeline, match=r"belongs to pipeline `clicks`, not `views`"):
        Overlay(store, "views")


def test_a_newer_layout_is_refused() -> None:
    store, _, _ = committed(a=b"1")
    newer = layout.LAYOUT_VERSION + 1
    store.write([], {layout.LAYOUT_KEY: layout.pack_version(newer)})
    with pytest.raises(StateLayoutNewer, match=f"has layout {newer}, .* upgrade headrace"):
        Overlay(store, "clicks")


def test_a_directory_with_a_hole_is_damaged() -> None:
    store, _, _ = committed(a=b"1")
    store.write([], {layout.STORE_KEY + b"ids": layout.pack_number(1)})
    with pytest.raises(StateCorrupt, match="1 names, but 1 is taken"):
        Overlay(store, "clicks").view("held")


names = st.sampled_from(("a", "b", "c", "d", "e"))
changed = st.dictionaries(names, st.none() | st.binary(max_size=2), max_size=4)
stretches = st.tuples(names, names).map(lambda ends: (min(ends), max(ends)))
deeds = st.lists(
    st.one_of(
        st.tuples(st.just("put"), changed),
        st.tuples(st.just("drop"), stretches),
        st.tuples(st.sampled_from(("commit", "discard")), st.none()),
    ),
    max_size=15,
)


@given(deeds)
def test_a_view_is_a_dictionary_with_an_undo(done: list[tuple[str, object]]) -> None:
    store, overlay, view = committed()
    kept: dict[str, bytes] = {}
    seen: dict[str, bytes] = {}
    for deed, of_what in done:
        if isinstance(of_what, dict):
            put(view, **of_what)
            both = {**seen, **of_what}
            seen = {name: row for name, row in both.items() if row is not None}
        elif isinstance(of_what, tuple):
            start, end = of_what
            view.drop(row_key(view, start.encode()), row_key(view, end.encode()))
            seen = {name: row for name, row in seen.items() if not start <= name < end}
        elif deed == "commit":
            overlay.commit({})
            kept = dict(seen)
        else:
            overlay.discard()
            seen = dict(kept)
        assert rows_of(view) == seen
        wanted = [row_key(view, name.encode()) for name in "abcde"]
        assert view.get_many(wanted) == [seen.get(name) for name in "abcde"]
        assert rows_of(Overlay(store, "clicks").view("ids")) == kept


def test_discarding_before_the_first_commit_loses_no_name() -> None:
    store = MemoryStore()
    overlay = Overlay(store, "clicks")
    view = overlay.view("ids")
    overlay.discard()
    put(view, a=b"1")
    overlay.commit({})
    again = Overlay(store, "clicks")
    assert again.view("held").prefix != view.prefix
    with pytest.raises(StateOfAnotherPipeline):
        Overlay(store, "views")
