"""The functions of aggregates. A function reads one value off each record and adds it.

An aggregate is bytes, or None where there is none yet:
    count         8 bytes, big-endian, signed: what Kafka's LongDeserializer reads
    sum           a JSON number
    min, max      the smallest or largest JSON number
    first, last   the bytes that came first or last, in order of arrival
    collect       a JSON array, in order of arrival
A record with nothing to add (no such field, null) leaves the aggregate as it is.

A user's function is an object with `initial()`, `add(aggregate, record)` and `merge(one, other)`
(for session windows). It takes and returns bytes or None, and must not change its arguments. A
record on which it raises, or returns anything else, is dead.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from struct import Struct
from typing import Any, NamedTuple

from headrace.contracts.errors import RecordFailed, SelectorInvalid
from headrace.contracts.policies import AggregatePolicy
from headrace.contracts.raised import clause_of
from headrace.contracts.record import Record
from headrace.contracts.selectors import check_call, load_object, select, select_json, select_number
from headrace.contracts.serde.json import (
    ReadField,
    decode_json,
    decode_json_field,
    encode_json,
)

Aggregated = bytes | None
_PARTS = {"initial": 0, "add": 2, "merge": 2}
"""The methods that a user's object must have, and the number of arguments of each."""
_TOO_LARGE = "with it the result would be larger than any floating-point number"
_count = Struct(">q")
_pack_count = _count.pack
_ZERO = _pack_count(0)
_COUNTED = {_pack_count(count): _pack_count(count + 1) for count in range(256)}
"""Small counts and their successors: most counts are small, and a look-up is faster."""


class Function(NamedTuple):
    """How an aggregate begins, grows and, for sessions, joins another."""

    read: Callable[[Record], Any] | None
    """Reads a value off each record, before anything is decided; None: the record itself."""
    initial: Callable[[], Aggregated]
    add: Callable[[Aggregated, Any], Aggregated]
    merge: Callable[[Aggregated, Aggregated], Aggregated]


def function_of(policy: AggregatePolicy, read: ReadField = decode_json_field) -> Function:
    """Return the function that a policy names."""
    of = policy.of or "value"
    if policy.function == "count":
        return Function(None, _zero, _count_one, _add_counts)
    if policy.function in {"sum", "min", "max"}:
        combine = _COMBINE[policy.function]
        return Function(select_number(of, read), _nothing, _adder(combine), _merger(combine))
    if policy.function in {"first", "last"}:
        keep = _keep_first if policy.function == "first" else _keep_last
        return Function(select(of, read), _nothing, keep, keep)
    if policy.function == "collect":
        return Function(select_json(of, read), _nothing, _collect, _concatenate)
    return user_function(policy.function, load_object(policy.function))


def user_function(name: str, of_user: Any) -> Function:
    """Wrap a user's object as a function; refuse one that lacks a method."""
    missing = [part for part in _PARTS if not callable(getattr(of_user, part, None))]
    if missing:
        message = f"`{name}` has no {' and no '.join(missing)}; an aggregate needs all of these"
        raise SelectorInvalid(message)
    try:
        user = of_user() if isinstance(of_user, type) else of_user
    except Exception as error:  # it is the user's class, and raises what it likes
        message = f"`{name}` cannot be made ({clause_of(error)}); it is called without arguments"
        raise SelectorInvalid(message) from error
    for part, arguments in _PARTS.items():
        check_call(f"{name}.{part}", getattr(user, part), arguments)

    return Function(
        None,
        _answering(name, "initial", user.initial),
        _answering(name, "add", user.add),
        _answering(name, "merge", user.merge),
    )


def _answering(name: str, part: str, call: Callable[..., Any]) -> Callable[..., Aggregated]:
    """Wrap a method of the user's, so that it returns an aggregate or raises RecordFailed."""

    def answer(*given: Any) -> Aggregated:
        try:
            found = call(*given)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:
            # An exception that ends a script, as `sys.exit` does, would end all instances in turn.
            message = f"`{name}` raised {type(problem).__name__} in `{part}`"
            raise RecordFailed(message) from problem
        if found is None or type(found) is bytes:
            return found
        message = f"`{name}` answered {type(found).__name__} in `{part}`, not bytes or None"
        raise RecordFailed(message)

    return answer


def _zero() -> Aggregated:
    return _ZERO


def _nothing() -> Aggregated:
    return None


def _count_one(aggregate: Aggregated, _: object) -> Aggregated:
    count = aggregate or _ZERO
    return _COUNTED.get(count) or _pack_count(int.from_bytes(count, "big") + 1)


def _add_counts(one: Aggregated, other: Aggregated) -> Aggregated:
    return _count.pack(_count.unpack(one or _ZERO)[0] + _count.unpack(other or _ZERO)[0])


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda one, other: one + other,
    "min": min,
    "max": max,
}


def _adder(combine: Callable[[Any, Any], Any]) -> Callable[[Aggregated, Any], Aggregated]:
    def add(aggregate: Aggregated, found: float | None) -> Aggregated:
        if found is None:
            return aggregate
        try:
            total = found if aggregate is None else combine(decode_json(aggregate), found)
        except OverflowError as problem:
            raise RecordFailed(_TOO_LARGE) from problem
        if type(total) is float and not isfinite(total):
            raise RecordFailed(_TOO_LARGE)
        return encode_json(total)

    return add


def _merger(combine: Callable[[Any, Any], Any]) -> Callable[[Aggregated, Aggregated], Aggregated]:
    add = _adder(combine)

    def merge(one: Aggregated, other: Aggregated) -> Aggregated:
        return one if other is None else add(one, decode_json(other))

    return merge


def _keep_first(one: Aggregated, other: Aggregated) -> Aggregated:
    return other if one is None else one


def _keep_last(one: Aggregated, other: Aggregated) -> Aggregated:
    return one if other is None else other


def _collect(aggregate: Aggregated, found: Any) -> Aggregated:
    if found is None:
        return aggregate
    one = encode_json(found)
    return b"[%s]" % one if aggregate is None else b"%s,%s]" % (aggregate[:-1], one)


def _concatenate(one: Aggregated, other: Aggregated) -> Aggregated:
    if one is None or other is None:
        return other if one is None else one
    return b"%s,%s" % (one[:-1], other[1:])
