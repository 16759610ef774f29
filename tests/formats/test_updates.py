"""The rows of suppressed updates: what was written is read again, whatever each one replaces."""

from __future__ import annotations

from itertools import product

from headrace.contracts.record import Record
from headrace.services.operators.rows import pack_time
from headrace.services.operators.updates import Update, decode_update, encode_updates
from headrace.services.operators.weight import replaced_weight, update_weights

_VALUES = (None, b"", b"old", b"another")


def test_updates_come_back_whatever_they_replace_in_whatever_order() -> None:
    replaced = [(prior, old) for prior, old in product(_VALUES, _VALUES)]
    # Each pair beside each other one: neighbours may share what they begin with.
    pairs = [pair for both in product(replaced, replaced) for pair in both]
    updates = [_update(number, prior, old) for number, (prior, old) in enumerate(pairs)]
    rows = encode_updates(updates)
    assert [decode_update(1, u.place, row) for u, row in zip(updates, rows, strict=True)] == updates


def _update(number: int, prior: bytes | None, old: bytes | None) -> Update:
    record = Record(b"k%d" % number, b"v", 7, (), "topic", 0, number)
    place = b"\x01" + pack_time(number) + (record.key or b"")
    weight = update_weights([record])[0] + replaced_weight(prior, old)
    return Update(place, number, prior, old, record, weight, has_place_row=True)
