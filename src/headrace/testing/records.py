"""Read the records that a test writes in Python; a slip is a sentence, as in a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from headrace.contracts.errors import ScenarioInvalid
from headrace.contracts.problem_text import listed, show
from headrace.contracts.record import Headers, Record
from headrace.testing.tables import (
    OFFSET_MAX,
    Event,
    Happening,
    does_not_happen,
    is_text,
    time_ms,
)

PARTITIONS_MAX = 10_000
"""Bound on the partitions of a test, each of which has operators of its own."""
_TIME_MS_MAX = (1 << 63) - 1
"""The latest time that Kafka has a place for."""
_FIELDS = ("key", "value", "time", "headers", "partition", "offset", "topic")


def check_happens(event: Event) -> None:
    """Refuse an event that no simulation knows, and one without a proper amount."""
    known = get_args(Happening)
    if event.what not in known:
        raise ScenarioInvalid(does_not_happen(event.what, known))
    _number(f"amount of `({event.what})`", event.amount)


def checked_partitions(count: object) -> int | None:
    """Return a number of partitions, None if none is given; refuse one that no test can have."""
    if count is None:
        return None
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= PARTITIONS_MAX:
        message = (
            f"{show(count)} is not a number of partitions; write at least 1 and at most"
            f" {PARTITIONS_MAX}, without quotes"
        )
        raise ScenarioInvalid(message)
    return count


def check_record(record: Record) -> None:
    """Refuse a record that no broker could bring, or in a partition that no topic of a test has."""
    _number("partition", record.partition)
    if record.offset is not None:
        _number("offset", record.offset)
    for name, content in (("key", record.key), ("value", record.value)):
        if not isinstance(content, bytes | None):
            message = (
                f"the {name} {show(content)} of a `Record` is not bytes; write them, or a mapping"
                ' in place of it, such as {"key": "a"}'
            )
            raise ScenarioInvalid(message)
    if record.partition >= PARTITIONS_MAX:
        message = (
            f"a record stands in partition {show(record.partition)}, and a test has at most"
            f" {PARTITIONS_MAX} partitions; write a lower one"
        )
        raise ScenarioInvalid(message)


def read_record(fields: Mapping[str, Any], topic: str | None) -> Record:
    """Return the record with these fields, of this topic; None if each must name its own."""
    if not isinstance(fields, Mapping):
        message = f'{show(fields)} is no record; write a mapping, such as {{"key": "a", "time": 1}}'
        raise ScenarioInvalid(message)
    unknown = [name for name in fields if name not in _FIELDS]
    if unknown:
        message = f"{show(unknown[0])} is not known of a record; known are {listed(_FIELDS)}"
        raise ScenarioInvalid(message)
    named = fields.get("topic", topic)
    if named is None:
        message = f"several topics are read here, and {show(fields.get('value'))} names none"
        raise ScenarioInvalid(message)
    if topic is not None and named != topic:
        message = f"a record stands in {show(named)}, and only `{topic}` is read here"
        raise ScenarioInvalid(message)
    offset = fields.get("offset")
    return Record(
        _as_bytes("key", fields.get("key")),
        _as_bytes("value", fields.get("value")),
        _time_ms(fields.get("time", 0)),
        _headers(fields.get("headers", ())),
        named,
        _number("partition", fields.get("partition", 0)),
        None if offset is None else _number("offset", offset),
    )


def _as_bytes(name: str, content: object) -> bytes | None:
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, str):
        if not is_text(content):
            message = f"the {name} {show(content)} holds a character that stands in no text"
            raise ScenarioInvalid(message)
        return content.encode()
    if not isinstance(content, Mapping):
        message = f"the {name} {show(content)} is neither text nor bytes, nor a mapping for JSON"
        raise ScenarioInvalid(message)
    try:
        return json.dumps(content).encode()
    except (TypeError, ValueError, RecursionError) as error:
        message = f"the {name} {show(content)} is no JSON: {error}"
        raise ScenarioInvalid(message) from error


def _time_ms(time: object) -> int:
    if isinstance(time, str):
        return time_ms(time)
    if isinstance(time, int) and abs(time) <= _TIME_MS_MAX:
        return time
    message = f"the time {show(time)} is neither text, such as `30s`, nor whole milliseconds"
    raise ScenarioInvalid(message)


def _headers(headers: Any) -> Headers:
    match headers:
        case [*pairs] if all(map(_is_header, pairs)):
            return tuple((name, _as_bytes("header", value)) for name, value in pairs)
        case _:
            message = f"the headers {show(headers)} are no list of pairs, a name and a value each"
            raise ScenarioInvalid(message)


def _is_header(pair: Any) -> bool:
    match pair:
        case [str(), _]:
            return True
        case _:
            return False


def _number(name: str, number: object) -> int:
    if isinstance(number, int) and 0 <= number <= OFFSET_MAX:
        return number
    message = f"the {name} {show(number)} is no whole number of at least 0"
    raise ScenarioInvalid(message)
