"""Functions as users write them: most answer; some raise at one record in a thousand, or worse."""

from __future__ import annotations

import math
from typing import Any, NoReturn
from zlib import crc32

from headrace.contracts.record import Record

_MANY = 10**6


def _number(record: Record) -> int:
    """Chance for a record: the same at every call, whichever records come with it."""
    return crc32(repr((record.key, record.value, record.timestamp_ms)).encode(errors="replace"))


class _Leaves(BaseException):
    """An error that no `except Exception` catches."""


class _Speechless(Exception):
    """Cannot say what it is about."""

    def __str__(self) -> str:
        raise RuntimeError


class _Undecided:
    """Has no truth value, and is equal to nothing that can be said."""

    def __bool__(self) -> bool:
        raise ValueError

    def __eq__(self, other: object) -> bool:
        raise ValueError

    __hash__ = None  # type: ignore[assignment]


class _Bytes(bytes):
    """Bytes that are none."""

    def __len__(self) -> int:
        raise ValueError


def _recursion(record: Record) -> Any:
    return _recursion(record)


def _endless() -> list[Any]:
    inside: list[Any] = []
    inside.append(inside)
    return inside


def _raise(error: BaseException) -> NoReturn:
    raise error


_RAISED = (
    lambda _: _raise(ValueError("\ud800")),
    lambda _: _raise(ValueError("x" * _MANY)),
    lambda _: _raise(_Speechless()),
    lambda _: _raise(KeyError(b"\xff")),
    lambda _: _raise(_Leaves("for good")),
    lambda _: _raise(SystemExit(0)),
    lambda _: _raise(GeneratorExit()),
    lambda _: _raise(StopIteration()),
    lambda _: _raise(MemoryError()),
    lambda _: _raise(OSError(28, "No space left on device")),
    lambda _: _raise(AssertionError()),
    _recursion,
)
_NONSENSE: tuple[Any, ...] = (
    *(object(), float("nan"), math.inf, {1, 2}, lambda: 1, 1j, _Undecided(), _Bytes(b"x")),
    *("\ud800", 10**5_000, -(10**400), {1: 2}, {"a": object()}, [float("nan")], _endless(), ...),
    *(
        {"a": {"b": {1}}},
        [b"x"],
        ("a",),
        bytearray(b"x"),
        memoryview(b"x"),
        range(3),
    ),
)


def sometimes(record: Record) -> Any:
    """A field's worth; one record in a thousand raises."""
    number = _number(record)
    if number % 1_000 == 0:
        return _RAISED[number // 1_000 % len(_RAISED)](record)
    return number % 50


def nonsense(record: Record) -> Any:
    """Return a wrong answer one time in ten, and raise now and then."""
    number = _number(record)
    if number % 100 == 0:
        return _RAISED[number // 100 % len(_RAISED)](record)
    if number % 10 == 0:
        return _NONSENSE[number // 10 % len(_NONSENSE)]
    return number % 50


class Sum:
    """An aggregate that raises now and then, in each of its parts, and answers nonsense."""

    def initial(self) -> bytes | None:
        """No result yet."""
        return None

    def add(self, aggregate: bytes | None, record: Record) -> Any:
        """One more, or what one record in ten makes of it."""
        number = _number(record)
        if number % 100 == 0:
            return _RAISED[number // 100 % len(_RAISED)](record)
        if number % 10 == 0:
            return _NONSENSE[number // 10 % len(_NONSENSE)]
        return b"%d" % (int(aggregate or b"0") + number % 7)

    def merge(self, one: bytes | None, other: bytes | None) -> Any:
        """Both together, unless it is unlucky."""
        total = int(one or b"0") + int(other or b"0")
        return _RAISED[0](one) if total % 13 == 0 else b"%d" % total


class Never(Sum):
    """An aggregate that cannot even begin."""

    def initial(self) -> bytes | None:
        """Raises at every window."""
        raise _Leaves
