"""Revenue of segments: totals are the same bytes as if each had been read and written as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from headrace.spark_jobs.jobs.revenue_by_segment import (
    _add,
    _net,
    _nothing,
    _read,
    _segment_of,
    _subtract,
    _Total,
    _write,
)
from headrace.spark_jobs.jobs.rows import write_json
from headrace.spark_jobs.read.json_text import read_json

AMOUNTS = (
    *("0", "-0", "5", "-7", "00", "007", "1.5", "-2.9", "1e3", "1e400", "-1e400", "NaN"),
    *("null", "true", "false", "[]", "[1]", "{}", "-"),
    *('""', '"12"', '"-3"', '" 4 "', '"x"', '"\\ud800"', '"\\u0661"'),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "1" + "0" * 30),
)
ORDERS = (
    b'{"segment":"s"}',
    b' {"amount_cents" : 3, "segment":"s"} ',
    b'{"segment":"s","amount_cents":1,"amount_cents":2}',
    b'{"segment":"s","amount_cents":1,"segment":null}',
    b'{"segment":"\xff","amount_cents":4}',
    b'{"segment":"\\ud800","amount_cents":5}',
    b'{"segment":"","amount_cents":6}',
    b'{"segment":7,"amount_cents":7}',
    b'{"segment":[1],"amount_cents":8}',
    b'{"segment":"s","amount_cents":%s}' % (b"9" * 4_300),
    b'{"segment":"s","amount_cents":%s}' % (b"9" * 4_301),
    b'{"amount_cents":9}',
    b"{}",
    b"12",
    b"-12",
    b"",
    *(b'{"segment":"s","amount_cents":%s}' % amount.encode() for amount in AMOUNTS),
)
TOTALS = ((0, 0), (1, 5), (-1, -5), (3, (1 << 63) - 1), (3, -1 << 63), (1 << 40, 12))


def _plain_segment_of(value: bytes) -> bytes | None:
    segment = (read_json(value) or {}).get("segment")
    if segment is None:
        return None
    return (segment if isinstance(segment, str) else json.dumps(segment)).encode()


def _plainly_changed(value: bytes, total: bytes, sign: int) -> bytes:
    order, before = read_json(value) or {}, json.loads(total)
    cents = before["revenue_cents"] + sign * int(order.get("amount_cents") or 0)
    return write_json({"orders": before["orders"] + sign, "revenue_cents": cents})


def _answer(call: Callable[..., Any], *given: Any) -> Any:
    try:
        return call(*given)
    except Exception as error:  # noqa: BLE001 - whatever it is, both raise it
        return type(error), str(error)


def _change_of(change: Callable[..., _Total], segment: bytes, value: bytes, total: bytes) -> bytes:
    return _write(change(segment, value, _read(total)))


@pytest.mark.parametrize("order", ORDERS, ids=range(len(ORDERS)))
def test_any_order_changes_a_total_as_its_json_says(order: bytes) -> None:
    grouped = _answer(_segment_of, b"o", order)
    segment = _answer(_plain_segment_of, order)
    if not isinstance(segment, bytes):
        assert grouped == segment
        return
    assert grouped[0] == segment
    for orders, cents in TOTALS:
        total = write_json({"orders": orders, "revenue_cents": cents})
        # A segment of an older checkpoint may have the whole order.
        for value in (grouped[1], order):
            for sign, change in ((1, _add), (-1, _subtract)):
                expected = _answer(_plainly_changed, order, total, sign)
                assert _answer(_change_of, change, segment, value, total) == expected


def test_totals_go_up_and_down_as_their_json_says() -> None:
    random = Random(5)
    total, plain = _nothing(), _write(_nothing())
    assert plain == write_json({"orders": 0, "revenue_cents": 0})
    for _ in range(2_000):
        order = b'{"segment":"s","amount_cents":%d}' % random.randrange(-9_000, 99_000)
        _, value = _segment_of(b"o", order) or (b"", b"")
        sign, change = random.choice(((1, _add), (-1, _subtract)))
        total, plain = change(b"s", value, total), _plainly_changed(order, plain, sign)
        assert _write(total) == plain
        assert _read(plain) == total


def test_the_net_of_orders_is_what_they_add_up_to() -> None:
    random = Random(6)
    orders = [b"%d" % random.randrange(-9_000, 1 << 62) for _ in range(40)]
    total = _nothing()
    for order in orders[:25]:
        total = _add(b"s", order, total)
    for order in orders[25:]:
        total = _subtract(b"s", order, total)
    assert _add(b"s", _net(orders[25:], orders[:25]), _nothing()) == total
    with pytest.raises(ValueError, match="x"):
        _net(orders, [b'{"amount_cents": "x"}'])
