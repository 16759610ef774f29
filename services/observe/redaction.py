"""Logs hold numbers, names and our own sentences; they never hold contents of a record.

Records hide in many places: in the message of an exception (`KeyError: 'customer-7'`), in the
representation of an object that a library puts into its message, in a field. So nothing is shown
because it looks harmless, only because its type is known to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from traceback import format_tb
from typing import Any

from headrace.contracts.errors import HeadraceError

WITHHELD = "<withheld>"
_SECRET_WORDS = re.compile(
    r"(?:keys?|values?|headers?|passwords?|tokens?|secrets?|credentials?|authorization)"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SPEAKING_MODULES = ("aiokafka.",)
"""Their exceptions name brokers and offsets, and never contents of records."""


def plain(found: Any) -> Any:
    """A field's content as it may be logged."""
    match found:
        case None | bool() | int() | float() | str():
            return found
        case PurePath():
            return str(found)
        case bytes() | bytearray() | memoryview():
            return f"<{len(found)} bytes>"
        case BaseException():
            return describe(found)
        case Mapping():
            return plain_fields(found)
        case tuple() if hasattr(found, "_asdict"):
            return plain_fields(found._asdict())
        case tuple() | list() | set() | frozenset():
            return [plain(item) for item in found]
        case _:
            return found.__name__ if isinstance(found, type) else f"<{type(found).__name__}>"


def plain_fields(fields: Mapping[Any, Any]) -> dict[str, Any]:
    """Fields as they may be logged; one that is called like a secret is withheld."""
    return {
        str(plain(name)): WITHHELD if _is_secret(name) else plain(content)
        for name, content in fields.items()
    }


def _is_secret(name: object) -> bool:
    words = _WORD.findall(name) if isinstance(name, str) else []
    return any(_SECRET_WORDS.fullmatch(word.lower()) for word in words)


def describe(problem: BaseException) -> str:
    """An exception's type, and its message where that cannot be a record's."""
    name = type(problem).__name__
    speaks = isinstance(problem, HeadraceError | OSError) or type(problem).__module__.startswith(
        _SPEAKING_MODULES
    )
    text = str(problem) if speaks else ""
    return f"{name}: {text}" if text else name


def traceback_text(problem: BaseException) -> str:
    """Where an exception comes from, with what caused it first, and without any locals."""
    return "\n".join(_told(problem, set())).rstrip()


def _told(problem: BaseException, seen: set[int]) -> Iterator[str]:
    seen.add(id(problem))
    before = problem.__cause__
    if before is None and not problem.__suppress_context__:
        before = problem.__context__
    if before is not None and id(before) not in seen:
        yield from _told(before, seen)
        yield "which led to:"
    yield "".join(format_tb(problem.__traceback__)) + describe(problem)
    if isinstance(problem, BaseExceptionGroup):
        for one in problem.exceptions:
            yield "one of them:"
            yield from _told(one, seen)
