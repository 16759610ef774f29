"""A compiled expression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as spark

Row = dict[str, Any]


@dataclass(frozen=True)
class Typed:
    """A function of a row, and the type of its answers."""

    kind: spark.DataType
    run: Callable[[Row], Any]
    as_decimal: spark.DecimalType | None = None
    """Of a whole number as written: the decimal that it is beside another decimal."""
    is_unclear: bool = False
    """Whether it may be a number as written: beside a decimal, only Spark knows its digits."""
    written: str | None = None
    """Of a text as written: the text."""
    is_constant: bool = False
    """Whether no column has a part in it."""
    chain: tuple[str, tuple[Typed, ...]] | None = None
    """Of a sum or product of whole numbers: its sign, and all that it adds up or multiplies."""
