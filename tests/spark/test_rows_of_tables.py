"""The table jobs make the same bytes of any JSON as if each value were read with all its fields."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.spark_jobs.jobs.customers_subscriptions import _join as _subscribed
from headrace.spark_jobs.jobs.orders_customers import _customer_of
from headrace.spark_jobs.jobs.orders_customers import _join as _ordered
from headrace.spark_jobs.jobs.revenue_by_segment import _segment_of
from headrace.spark_jobs.jobs.rows import write_json
from headrace.spark_jobs.read.json_text import read_json, text_of

NAMES = ("customer", "amount_cents", "name", "segment", "plan", "other")
texts = st.text(st.characters(codec=None), max_size=4)
numbers = st.integers(-3, 3) | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False)
plain = texts | numbers | st.booleans() | st.none()
odd = st.recursive(
    plain, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=5
)
objects = st.dictionaries(st.sampled_from(NAMES), plain | odd)
values = st.one_of(
    st.none(),
    st.builds(
        lambda said, ascii_too: json.dumps(said, ensure_ascii=ascii_too).encode(errors="replace"),
        objects,
        st.booleans(),
    ),
    st.sampled_from((b"", b"[1]", b'"name"', b"7", b"null", b'{"name":', b'{"name":"\xff"}')),
)
BIG, DEEP = b"9" * 320, b"[" * 90 + b"]" * 90


def _answer(call: Callable[..., Any], *given: Any) -> Any:
    try:
        return call(*given)
    except Exception as error:  # noqa: BLE001 - whatever it is, both raise it
        return type(error), str(error)


def _read(value: bytes | None, *names: str) -> dict[str, Any]:
    fields = read_json(value) or {}
    return {name: fields.get(name) for name in names}


def _plain_customer_of(value: bytes) -> bytes | None:
    customer = text_of(_read(value, "customer")["customer"])
    return None if customer is None else customer.encode()


def _plain_segment_of(value: bytes) -> tuple[bytes, bytes] | None:
    segment, cents = _read(value, "segment", "amount_cents").values()
    if segment is None:
        return None
    whole = b"%d" % cents if type(cents) is int else value
    return (text_of(segment) or "").encode(), whole


@example(b'{"customer":"c","amount_cents":1e400}', b'{"name":"n","segment":[1.0,-0]}')
@example(b'{"customer":"c","amount_cents":%s}' % BIG, b'{"name":"n","segment":"s","other":1.50}')
@example(b'{"customer":1.50,"amount_cents":2}', b'{"name":18446744073709551616,"plan":-0.0}')
@example(
    b'{"customer":"a\x7f","other":%s}' % DEEP, b'{"name":"\\ud83d","segment":"\\ud83d\\ude00"}'
)
@example(b'{"customer":"\\ud800"}', b'{"name":"\xc3\xa9","name":2,"plan":"p"}')
@example(b'{"name":-18446744073709551616}', b'{"plan":[1e2]}')
@example(b'{"segment":"s","amount_cents":18446744073709551616}', None)
@given(values, values)
def test_rows_have_the_bytes_of_fields_that_are_read_in_full(
    one: bytes | None, other: bytes | None
) -> None:
    ordered = _answer(lambda: _read(one, "customer", "amount_cents"))
    joined = _answer(lambda: write_json(ordered | _read(other, "name", "segment")))
    assert _answer(_ordered, one, other) == joined
    subscribed = _answer(lambda: write_json(_read(one, "name") | _read(other, "plan")))
    assert _answer(_subscribed, one, other) == subscribed
    for value in (one, other):
        if value is not None:
            of_order = _answer(_customer_of, b"o", value)
            assert of_order == _answer(_plain_customer_of, value)
            of_row = _answer(_segment_of, b"o", value)
            assert of_row == _answer(_plain_segment_of, value)
