"""Compile selectors into fast functions of a record, once for a pipeline.

The caller passes the function that reads a value: JSON, or a value whose schema `registered` knows.

An id is bytes. A key, a header and a whole value are taken as they are. A text field of a JSON
value gives its UTF-8 bytes. So the text "1" and the number 1 are the same id, and so are a header
`1` and a field "1". Any other field gives its canonical JSON (sorted keys, no spaces). Whole
numbers are exact as far as doubles reach, so with 308 digits at least; beyond that a JSON value
cannot be read. A number with a fraction counts as the nearest double, and 1.0 is not 1. A missing
field, a null and a null value give no id.

Bytes that cannot be read raise RecordUndecodable, which names the place and never shows the
content. A user's function that raises, or returns an unusable answer, raises RecordFailed. Either
way the record goes to the dead-letter topic.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from math import isfinite
from typing import Any, TypeVar

from headrace.contracts.errors import RecordFailed, RecordUndecodable, SelectorInvalid
from headrace.contracts.modules import import_own
from headrace.contracts.raised import clause_of
from headrace.contracts.record import Record
from headrace.contracts.selector_text import (
    RECORD_TIMESTAMP,
    Comparison,
    Literals,
    Selector,
    Sign,
    parse_selector,
    parse_where,
)
from headrace.contracts.serde.json import (
    KINDS,
    Json,
    ReadField,
    decode_json,
    decode_json_field,
    encode_json,
)

Answer = TypeVar("Answer")
Number = int | float
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")
_BLANKS_OF_JSON, _NULL_OF_JSON = b" \t\n\r", b"null"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARE: dict[Sign, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def select(text: str, read: ReadField = decode_json_field) -> Callable[[Record], bytes | None]:
    """Return a function that gives the id in a record, as bytes."""
    selector = parse_selector(text)
    if selector.place == "function":
        return _function_id(selector)
    if selector.place == "value" and selector.path:
        return _field_id(selector.path, read)
    return _raw_bytes(selector)


def select_json(text: str, read: ReadField = decode_json_field) -> Callable[[Record], Json]:
    """Return a function that gives the selected JSON; it reads keys and headers as text."""
    selector = parse_selector(text)
    if selector.place == "value":
        return _field(selector.path, read)
    if selector.place == "function":
        return _call(selector, partial(_json_answer, selector))
    return _text(selector)


def select_number(
    text: str, read: ReadField = decode_json_field
) -> Callable[[Record], Number | None]:
    """Return a function that gives the selected number; keys and headers are JSON numbers."""
    selector = parse_selector(text)
    as_text = selector.place in {"key", "header"}
    find = _parsed_text(selector) if as_text else select_json(text, read)

    def number(record: Record) -> Number | None:
        found = find(record)
        if found is None or type(found) is int or type(found) is float:
            return found
        message = f"`{text}` is {_kind(found)}, not a number"
        raise RecordUndecodable(message)

    return number


def select_timestamp_ms(text: str, read: ReadField = decode_json_field) -> Callable[[Record], int]:
    """Return a function that gives a record's event time.

    That is the record's own timestamp, or the selected milliseconds since 1970 (in a key or a
    header, their digits), or ISO 8601 text with an offset.
    """
    if text == RECORD_TIMESTAMP:
        return operator.attrgetter("timestamp_ms")
    selector = parse_selector(text)
    find = select_json(text, read)
    is_text = selector.place in {"key", "header"}

    def timestamp_ms(record: Record) -> int:
        found = find(record)
        if type(found) is int:
            return found
        if isinstance(found, str):
            if is_text and _WHOLE_NUMBER.fullmatch(found):
                return int(found)
            return _parse_timestamp_ms(found, selector)
        message = f"`{text}` is {_kind(found)}, not a timestamp"
        raise RecordUndecodable(message)

    return timestamp_ms


def predicate(where: str, read: ReadField = decode_json_field) -> Callable[[Record], bool]:
    """Return a function that says whether a comparison, or the user's function, holds.

    For a missing field and for null, only `== null` holds. Values of two kinds are never equal
    (true is not 1, "1" is not 1). To order them raises RecordUndecodable.
    """
    parsed = parse_where(where)
    if isinstance(parsed, Comparison):
        return _comparison(parsed, read)
    return _call(parsed, bool)


def load_function(text: str) -> Callable[..., Any]:
    """Load the user's own function, from the installed packages or the working folder."""
    found = load_object(text)
    if not callable(found):
        message = f"`{text}` is not a function; name something that can be called"
        raise SelectorInvalid(message)
    check_call(text, found, 1)
    return found


def check_call(text: str, function: Callable[..., Any], arguments: int) -> None:
    """Refuse a function that is async or a generator, or that does not take so many arguments."""
    later = (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction)
    called = function, type(function).__call__
    if any(is_later(one) for is_later in later for one in called):
        message = f"`{text}` answers later (async or yield); write one that returns its answer"
        raise SelectorInvalid(message)
    try:
        parameters = signature(function)
    except (TypeError, ValueError):
        # A function written in C may have no signature.
        return
    try:
        parameters.bind(*range(arguments))
    except TypeError as error:
        message = f"`{text}` cannot be called with {_counted(arguments)}; change its parameters"
        raise SelectorInvalid(message) from error


def _counted(arguments: int) -> str:
    return {0: "nothing", 1: "a record"}.get(arguments, f"{arguments} arguments")


def load_object(text: str) -> object:
    """Load the object `module:name`, from the installed packages or the working folder."""
    selector = parse_selector(text)
    if selector.place != "function":
        message = f"`{text}` names nothing in a module; write `module:name`"
        raise SelectorInvalid(message)
    module_name, path = selector.path
    try:
        found: object = import_own(module_name)
    except ImportError as error:
        message = f"`{text}`: {error}"
        raise SelectorInvalid(message) from error
    try:
        return operator.attrgetter(path)(found)
    except AttributeError as error:
        message = f"`{text}`: module `{module_name}` has no `{path}`; check the spelling"
        raise SelectorInvalid(message) from error
    except Exception as error:
        message = f"`{text}`: module `{module_name}` gives no `{path}` ({clause_of(error)})"
        raise SelectorInvalid(message) from error


def _raw_bytes(selector: Selector) -> Callable[[Record], bytes | None]:
    if selector.place in {"key", "value"}:
        return operator.attrgetter(selector.place)
    (wanted,) = selector.path

    def last_header(record: Record) -> bytes | None:
        headers = record[3]
        if len(headers) == 1:
            # The way of nearly every record.
            name, content = headers[0]
            return content if name == wanted else None
        for name, content in reversed(headers):
            if name == wanted:
                return content
        return None

    return last_header


def _field(path: tuple[str, ...], read: ReadField) -> Callable[[Record], Json]:
    def field(record: Record) -> Json:
        return None if record.value is None else read(record.value, path)

    return field


def _field_id(path: tuple[str, ...], read: ReadField) -> Callable[[Record], bytes | None]:
    find = _field(path, read)

    def field_id(record: Record) -> bytes | None:
        found = find(record)
        if type(found) is str:
            return found.encode()
        return None if found is None else encode_json(found)

    return field_id


def _text(selector: Selector) -> Callable[[Record], str | None]:
    find = _raw_bytes(selector)

    def text(record: Record) -> str | None:
        found = find(record)
        if found is None:
            return None
        try:
            return found.decode()
        except UnicodeDecodeError as error:
            message = f"`{selector.text}` is not UTF-8 text"
            raise RecordUndecodable(message) from error

    return text


def _parsed_text(selector: Selector) -> Callable[[Record], Json]:
    find = _raw_bytes(selector)

    def parsed(record: Record) -> Json:
        found = find(record)
        try:
            return None if found is None else decode_json(found)
        except RecordUndecodable as error:
            message = f"`{selector.text}` is not a number"
            raise RecordUndecodable(message) from error

    return parsed


def _call(selector: Selector, use: Callable[[Any], Answer]) -> Callable[[Record], Answer]:
    """Return a function that calls the user's function and applies `use` to its answer."""
    function = load_function(selector.text)

    def call(record: Record) -> Answer:
        try:
            return use(function(record))
        except (RecordFailed, KeyboardInterrupt):
            raise
        except BaseException as error:
            # An exception that ends a script, as `sys.exit` does, would end all instances in turn.
            message = f"`{selector.text}` raised {type(error).__name__}"
            raise RecordFailed(message) from error

    return call


def _json_answer(selector: Selector, found: Any) -> Json:
    if type(found) not in KINDS or (type(found) is float and not isfinite(found)):
        message = f"`{selector.text}` returned {type(found).__name__}, which JSON has no word for"
        raise RecordFailed(message)
    json: Json = found
    if isinstance(json, list | dict):
        try:
            encode_json(json)
        except RecordUndecodable as error:
            message = f"`{selector.text}` returned {_kind(json)} that is not JSON: {error}"
            raise RecordFailed(message) from error
    return json


def _function_id(selector: Selector) -> Callable[[Record], bytes | None]:
    def as_bytes(found: object) -> bytes | None:
        if found is None or isinstance(found, bytes):
            return found
        if isinstance(found, str):
            return found.encode(errors="surrogatepass")
        if type(found) is int:
            return b"%d" % found
        message = f"`{selector.text}` returned {type(found).__name__}, not bytes, str, int or None"
        raise RecordFailed(message)

    return _call(selector, as_bytes)


def _parse_timestamp_ms(text: str, selector: Selector) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"`{selector.text}` is text, but not ISO 8601"
        raise RecordUndecodable(message) from error
    if moment.tzinfo is None:
        message = f"`{selector.text}` is a time without an offset, such as Z or +02:00"
        raise RecordUndecodable(message)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _comparison(comparison: Comparison, read: ReadField) -> Callable[[Record], bool]:
    selector, sign, right = comparison.left, comparison.sign, comparison.right
    if selector.place == "value" and not selector.path and right is None:
        return _is_there if sign == "!=" else _is_not_there
    compare = _COMPARE[sign]
    find: Callable[[Record], Any] = select_json(selector.text, read)
    if selector.place in {"key", "header"} and right is None:
        # Bytes of any kind are there, or are not.
        find = _raw_bytes(selector)
    elif selector.place in {"key", "header"} and _kind(right) == "a number":
        find = _parsed_text(selector)

    def equal(record: Record) -> bool:
        found = find(record)
        if found is None and right is not None:
            return False
        if _kind(found) != _kind(right):
            return sign == "!="
        return compare(found, right)

    def ordered(record: Record) -> bool:
        found = find(record)
        if found is None:
            return False
        if _kind(found) != _kind(right):
            message = f"`{selector.text}` is {_kind(found)}, and {_shown(right)} is {_kind(right)}"
            raise RecordUndecodable(message)
        return compare(found, right)

    return equal if sign in {"==", "!="} else ordered


def _is_there(record: Record) -> bool:
    """Return whether a record has a value, which may be bytes of any kind but JSON's `null`."""
    value = record.value
    return value is not None and value.strip(_BLANKS_OF_JSON) != _NULL_OF_JSON


def _is_not_there(record: Record) -> bool:
    return not _is_there(record)


def _kind(found: object) -> str:
    return KINDS.get(type(found), type(found).__name__)


def _shown(literal: Literals) -> str:
    return encode_json(literal).decode()
