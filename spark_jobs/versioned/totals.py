"""How the values of a group become one aggregate: the functions that add a value and subtract one.

    stored bytes -> read -> aggregate -> add, subtract, add, ... -> aggregate -> write -> bytes

A table reads the aggregate of a group once for a batch, and writes it where bytes are needed: in
the store, and in each change that leaves.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Fold = Callable[[bytes, bytes, Any], Any]
    """Takes group, value and aggregate so far; returns the new aggregate, None for none."""
    Net = Callable[[Sequence[bytes], Sequence[bytes]], bytes]
    """Takes the values that leave a group and those that come; returns what `add` takes for all."""

_long = Struct(">q")


class Form(NamedTuple):
    """How an aggregate is kept as bytes, where its functions take it as something else."""

    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]
    """Takes whatever `add` and `subtract` return; what cannot be written, they must refuse."""


class Aggregation(NamedTuple):
    """How values become one aggregate, and how one of them is taken out again.

    The functions may change the aggregate that they are given, and return it.
    """

    initial: Callable[[], Any] | None
    """The aggregate of nothing; None where the first value is the first aggregate."""
    add: Fold
    subtract: Fold
    form: Form | None = None
    """None where the functions take the aggregate as bytes."""
    net: Net | None = None
    """Makes one value of many, where their order makes no difference, as in a sum.

    Then a task sends one message for a group in a micro-batch, not one for each row, if only the
    last updates leave. `net` raises if there is a value on which `add` or `subtract` would; these
    values go one by one. `add` never fails on what it returns, and returns no None.
    """


def sum_of(number_of: Callable[[bytes], int]) -> Aggregation:
    """Make the sum of a number in each value, as eight bytes, big-endian."""

    def add(_: bytes, value: bytes, total: int) -> int:
        return in_64_bits(total + number_of(value))

    def subtract(_: bytes, value: bytes, total: int) -> int:
        return in_64_bits(total - number_of(value))

    return Aggregation(int, add, subtract, Form(read_long, write_long))


def count() -> Aggregation:
    """Count the rows of a group, as eight bytes, big-endian."""
    return sum_of(lambda _: 1)


def numbers_of(number_of: Callable[[bytes], int]) -> Aggregation:
    """Keep all numbers of a group, ascending, eight bytes each, since a minimum may be taken out.

    `least` and `greatest` read it; a mapped table of one of them is the minimum or the maximum.
    """

    def add(_: bytes, value: bytes, numbers: array[int]) -> array[int]:
        insort(numbers, number_of(value))
        return numbers

    def subtract(_: bytes, value: bytes, numbers: array[int]) -> array[int]:
        number = number_of(value)
        place = bisect_left(numbers, number)
        if place < len(numbers) and numbers[place] == number:
            del numbers[place]
        return numbers

    return Aggregation(lambda: array("q"), add, subtract, Form(_read_numbers, _write_numbers))


def least(_: bytes, numbers: bytes) -> bytes | None:
    """Return the least of a group's stored numbers, None of an empty group."""
    return numbers[: _long.size] or None


def greatest(_: bytes, numbers: bytes) -> bytes | None:
    """Return the greatest of a group's stored numbers, None of an empty group."""
    return numbers[-_long.size :] or None


def _read_numbers(stored: bytes) -> array[int]:
    return array("q", np.frombuffer(stored, ">i8").astype(np.int64).tobytes())


def _write_numbers(numbers: array[int]) -> bytes:
    return np.array(numbers).astype(">i8").tobytes()


def reduce(
    adder: Callable[[bytes, bytes], bytes], subtractor: Callable[[bytes, bytes], bytes]
) -> Aggregation:
    """Combine two functions of the aggregate so far and a value; it begins as the first value."""
    return Aggregation(
        None,
        lambda _, value, total: adder(total, value),
        lambda _, value, total: subtractor(total, value),
    )


def in_64_bits(number: int) -> int:
    """Return a count or a sum; raise OverflowError for one that 64 bits do not hold."""
    if -(1 << 63) <= number < 1 << 63:
        return number
    message = f"{number} does not fit into 64 bits"
    raise OverflowError(message)


def write_long(number: int) -> bytes:
    """Pack a count or a sum into its eight bytes."""
    return _long.pack(number)


def read_long(packed: bytes) -> int:
    """Unpack a count or a sum."""
    number: int = _long.unpack(packed)[0]
    return number
