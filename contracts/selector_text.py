"""The syntax of selectors, comparisons and aggregate functions; this module loads no code.

key                  the record's key
value                the whole value
value.order.id       a field of a JSON object
header.NAME          the last header of that name; everything behind the first dot is the name
module:function      the user's own, called with the record
value.amount >= 3    a comparison: selector, one of == != < <= > >=, a JSON literal
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Literal, NamedTuple, NoReturn, cast

from headrace.contracts.errors import SelectorInvalid
from headrace.contracts.problem_text import show

AGGREGATE_FUNCTIONS = ("count", "sum", "min", "max", "first", "last", "collect")
RECORD_TIMESTAMP = "record"
_FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
_COMPARISON = re.compile(r"(.+?)\s*(==|!=|<=|>=|<|>)\s*(.+)", re.DOTALL)
_FORMS = "write `key`, `value.FIELD`, `header.NAME` or `module:function`"
_EXAMPLES = '`value.amount >= 3` or `header.type == "click"`'

_IN_QUOTES = re.compile(r'"[^"]*(?:"|$)')
_OF_OTHER_LANGUAGES = (
    (r"<>", "`<>` is no sign; write `!=`"),
    (
        r"\s(and|or|in|like|between)\s|^\s*not\s|&&|\|\|",
        (
            "a filter makes one comparison; write a filter for each that must hold, or a function,"
            " `module:function`"
        ),
    ),
    (r"\sis\s+not\s+(null|none)\b", "write `!= null`"),
    (r"\sis\s+(null|none)\b", "write `== null`"),
    (r"^[^<>=!]*=[^<>=!]*$", "`=` is no sign; write `==`"),
)
"""Words and signs of SQL and Python in a comparison that cannot be read, and what to write."""
_SECOND = re.compile(r"\s(and|or)\s+(not\s+)?(key\s|value\.|header\.)", re.IGNORECASE)
"""Fields may have blanks in their names. None has another selector in it."""

Sign = Literal["==", "!=", "<", "<=", ">", ">="]
Literals = str | int | float | bool | None


class Selector(NamedTuple):
    """Where in a record to look."""

    text: str
    place: Literal["key", "value", "header", "function"]
    path: tuple[str, ...]
    """Field names; or the header's name; or module and function."""


class Comparison(NamedTuple):
    """A condition on a record: a selector, a sign and a literal."""

    text: str
    left: Selector
    sign: Sign
    right: Literals


def parse_selector(text: str) -> Selector:
    """Parse a selector."""
    if _SECOND.search(f"{text} "):
        message = f"`{text}` names two places in a record; {_FORMS}"
        raise SelectorInvalid(message)
    place, _, rest = text.partition(".")
    if text in {"key", "value"}:
        return Selector(text, "key" if text == "key" else "value", ())
    if place == "header" and rest:
        return Selector(text, "header", (rest,))
    if place == "value" and all(rest.split(".")):
        return Selector(text, "value", tuple(rest.split(".")))
    function = _FUNCTION.fullmatch(text)
    if function and place not in {"value", "header"}:
        return Selector(text, "function", (function[1], function[2]))
    message = f"`{text}` selects nothing in a record; {_FORMS}"
    raise SelectorInvalid(message)


def parse_where(text: str) -> Comparison | Selector:
    """Parse a filter's `where`: a comparison, or a function's selector."""
    try:
        return _parse_where(text)
    except SelectorInvalid as error:
        without_texts = _IN_QUOTES.sub('""', text)
        for pattern, sentence in _OF_OTHER_LANGUAGES:
            if re.search(pattern, without_texts, re.IGNORECASE):
                message = f"`{text}`: {sentence}"
                raise SelectorInvalid(message) from error
        raise


def _parse_where(text: str) -> Comparison | Selector:
    parts = _COMPARISON.fullmatch(text.strip())
    if parts is None:
        return _parse_function_alone(text)
    if parts[1].endswith("="):
        meant = f"{parts[2]}=" if parts[2] in {"<", ">"} else parts[2]
        message = f"`{text}`: `={parts[2]}` is no sign; write `{meant}`"
        raise SelectorInvalid(message)
    left, sign, right = parse_selector(parts[1]), parts[2], _parse_literal(parts[3])
    if left.place == "function":
        message = (
            f"`{text}` compares what a function returns; let `{left.text}` itself say yes or no"
        )
        raise SelectorInvalid(message)
    if left.place in {"key", "header"} and isinstance(right, bool):
        message = f'`{text}`: keys and headers are text; write "{parts[3]}" in double quotes'
        raise SelectorInvalid(message)
    if sign not in {"==", "!="} and (right is None or isinstance(right, bool)):
        message = f"`{text}`: {parts[3]} has no order; compare it with == or !="
        raise SelectorInvalid(message)
    return Comparison(text, left, cast("Sign", sign), right)


def check_selector(text: str) -> str:
    """Return the text itself, if it is a selector."""
    return parse_selector(text).text


def check_timestamp(text: str) -> str:
    """Return the text itself, if it says where a record's timestamp is."""
    return text if text == RECORD_TIMESTAMP else check_selector(text)


def check_where(text: str) -> str:
    """Return the text itself, if it is a comparison or a function."""
    return parse_where(text).text


def check_aggregate_function(text: str) -> str:
    """Return the text itself, if it names one of our functions or can name one of the user's."""
    if text not in AGGREGATE_FUNCTIONS and _FUNCTION.fullmatch(text) is None:
        message = (
            f"`{text}` is not a function; write one of {', '.join(AGGREGATE_FUNCTIONS)},"
            " or `module:name` for one of yours"
        )
        raise SelectorInvalid(message)
    return text


def _parse_function_alone(text: str) -> Selector:
    function = _FUNCTION.fullmatch(text.strip())
    if function is None:
        message = (
            f"`{text}` is not a comparison; write one such as {_EXAMPLES}, or `module:function`"
        )
        raise SelectorInvalid(message)
    return Selector(text.strip(), "function", (function[1], function[2]))


def _parse_literal(text: str) -> Literals:
    try:
        literal = json.loads(text, parse_float=_finite, parse_constant=_refuse_constant)
        if isinstance(literal, str):
            # No record holds half of a surrogate pair.
            literal.encode()
    except (ValueError, RecursionError):
        message = f'{show(text)} is not a JSON literal; write a number, true, false, null or "text"'
        raise SelectorInvalid(message) from None
    if isinstance(literal, str | int | float | None):
        return literal
    message = (
        f"{show(text)} is a list or an object; compare with a number, true, false, null or text"
    )
    raise SelectorInvalid(message)


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        _refuse_constant(text)
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
