"""The options of a pipeline in Python: those of its file, with `_` instead of `-`.

A duration is text such as "30s", or milliseconds. A function is its name, `"module:function"`, or
the function itself if it can be imported by its name.
"""

from collections.abc import Callable
from typing import Any, Literal, Required, TypedDict

Duration = str | int
Size = str | int
Function = str | Callable[..., Any]
Late = Literal["forward", "drop", "topic"]


class SourceOptions(TypedDict, total=False):
    """Options of a source."""

    timestamp: Function
    values: Literal["json", "registry"]
    max_future: Duration
    idle: Duration
    max_delay: Duration
    max_skew: Duration


class SinkOptions(TypedDict, total=False):
    """Options of a pipeline's end."""

    late: str
    dead: str
    on_failure: Literal["dead", "stop"]


class OperatorOptions(TypedDict, total=False):
    """Options of every operator."""

    name: str
    store: str


class Buffer(TypedDict, total=False):
    """How much an operator may hold."""

    records: int
    bytes: Size
    when_full: Literal["emit-early", "shut-down", "spill"]


class Window(TypedDict, total=False):
    """A window; its kind decides which of these options it takes."""

    kind: Required[Literal["tumbling", "hopping", "session", "sliding", "unlimited"]]
    size: Duration
    advance: Duration
    gap: Duration
    difference: Duration
    start: Duration
    grace: Duration


class ReorderOptions(OperatorOptions, total=False):
    """Options of `reorder`."""

    grace: Required[Duration]
    late: Late
    buffer: Buffer
    idle: Duration


class DeduplicateOptions(OperatorOptions, total=False):
    """Options of `deduplicate`."""

    by: Literal["key", "key+id", "id"]
    id: Function
    interval: Required[Duration]
    late: Late


class DistinctOptions(OperatorOptions, total=False):
    """Options of `distinct`."""

    window: Required[Window]
    late: Literal["drop", "topic"]


class TableOptions(OperatorOptions, total=False):
    """Options of `table`."""


class FilterOptions(OperatorOptions, total=False):
    """Options of `filter`."""

    where: Required[Function]


class SampleOptions(OperatorOptions, total=False):
    """Options of `sample`."""

    every: Required[int]


class AggregateOptions(OperatorOptions, total=False):
    """Options of `aggregate`."""

    function: Required[Function]
    of: Function
    window: Window
    retention: Duration
    late: Literal["drop", "topic"]


class SuppressOptions(OperatorOptions, total=False):
    """Options of `suppress`."""

    until: Required[Literal["time-limit", "window-closes"]]
    limit: Duration
    window: Window
    buffer: Buffer
