"""Pack two values into one that Spark can unpack, for joins whose sides become columns.

        length of the left value (u32, big-endian, all ones is null) | left | a byte | right

The byte is 1 if there is a right value, and 0 if it is null.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.spark_jobs.shapes import unsigned

if TYPE_CHECKING:
    from pyspark.sql import Column

_u32 = Struct(">I")
_NULL = (1 << 32) - 1
_LONGEST = (1 << 31) - 1


def paired(left: bytes | None, right: bytes | None) -> bytes:
    """Join two values by keeping both; a missing side stays null."""
    length = _u32.pack(_NULL if left is None else len(left))
    has_right = b"\0" if right is None else b"\1"
    return b"".join((length, left or b"", has_right, right or b""))


def left_of(column: str) -> Column:
    """Return the left value of a pair."""
    pair = F.col(column)
    return F.when(_length(pair) != _NULL, F.substring(pair, F.lit(5), _size(pair)))


def right_of(column: str) -> Column:
    """Return the right value of a pair."""
    pair = F.col(column)
    has_right = F.substring(pair, _size(pair) + 5, F.lit(1))
    right = F.substring(pair, _size(pair) + 6, F.lit(_LONGEST))
    return F.when(has_right == F.lit(b"\1"), right)


def _length(pair: Column) -> Column:
    return unsigned(F.substring(pair, 1, 4))


def _size(pair: Column) -> Column:
    return F.when(_length(pair) == _NULL, F.lit(0)).otherwise(_length(pair)).cast("int")
