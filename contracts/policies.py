"""The options of each operator. The same classes read YAML and are written in Python.

YAML spells a field by its alias (`grace: 30s`, `when-full: spill`), Python by its name
(`grace_ms=30_000`, `when_full="spill"`). Every policy is frozen and refuses unknown keys.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    field_validator,
    model_validator,
)

from headrace.contracts.selector_text import check_aggregate_function, check_selector, check_where
from headrace.contracts.time import (
    COUNT_MAX,
    TIME_MS_MAX,
    DurationMs,
    SizeBytes,
    WaitMs,
    format_duration_ms,
)

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,79}$")]
"""A name that Kafka accepts for a topic, short enough to have a suffix."""

SelectorText = Annotated[str, AfterValidator(check_selector)]

WINDOWS_MAX = 10_000
"""The most hopping windows that a record may be in: each is a row to read and to write."""


def _kebab(name: str) -> str:
    return name.removesuffix("_ms").replace("_", "-")


class Policy(BaseModel):
    """The rules that all policies share."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=_kebab,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )


class Closing(Policy):
    """A window that closes, and then takes no more records."""

    @model_validator(mode="after")
    def _within_time(self) -> Self:
        assert isinstance(self, Tumbling | Hopping | Session | Sliding)
        needed_ms = retention_needed_ms(self)
        if needed_ms > TIME_MS_MAX:
            message = (
                f"this {self.kind} window would be kept for {needed_ms} ms, and at most"
                f" {TIME_MS_MAX} ms fit; make it shorter"
            )
            raise ValueError(message)
        return self


class Tumbling(Closing):
    """Windows `[start, start + size)`, aligned to zero."""

    kind: Literal["tumbling"] = "tumbling"
    size_ms: Annotated[DurationMs, Field(gt=0)]
    grace_ms: DurationMs
    """How long after its end a window still takes records."""


class Hopping(Closing):
    """Windows `[start, start + size)` that begin every `advance`, aligned to zero."""

    kind: Literal["hopping"] = "hopping"
    size_ms: Annotated[DurationMs, Field(gt=0)]
    advance_ms: Annotated[DurationMs, Field(gt=0)]
    """How far apart two windows begin; at most `size`."""
    grace_ms: DurationMs
    """How long after its end a window still takes records."""

    @model_validator(mode="after")
    def _advance_within_size(self) -> Hopping:
        if self.advance_ms > self.size_ms:
            message = (
                "`advance` is longer than `size`, so records would fall between windows;"
                " make it at most `size`"
            )
            raise ValueError(message)
        windows = -(-self.size_ms // self.advance_ms)
        if windows > WINDOWS_MAX:
            message = (
                f"each record would stand in {windows} windows at once, and may in {WINDOWS_MAX};"
                " make `advance` longer or `size` shorter"
            )
            raise ValueError(message)
        return self


class Session(Closing):
    """Windows `[first, last]` of records no further apart than `gap`."""

    kind: Literal["session"] = "session"
    gap_ms: DurationMs
    """The longest silence within a session."""
    grace_ms: DurationMs
    """How long after its end and the gap a session still takes records."""


class Sliding(Closing):
    """Windows `[end - difference, end]` that begin or end at a record."""

    kind: Literal["sliding"] = "sliding"
    difference_ms: DurationMs
    """How far apart the first and the last record of a window may be."""
    grace_ms: DurationMs
    """How long after its end a window still takes records."""


class Unlimited(Policy):
    """One window `[start, for ever)`."""

    kind: Literal["unlimited"] = "unlimited"
    start_ms: DurationMs = 0
    """Records before it are in no window."""


Window = Annotated[Tumbling | Hopping | Session | Sliding | Unlimited, Field(discriminator="kind")]

WINDOW_KINDS: dict[str, type[Policy]] = {
    "tumbling": Tumbling,
    "hopping": Hopping,
    "session": Session,
    "sliding": Sliding,
    "unlimited": Unlimited,
}


def retention_needed_ms(window: Tumbling | Hopping | Session | Sliding) -> int:
    """Return how long a window must be kept so that every record in time still finds it."""
    if isinstance(window, Session):
        return window.gap_ms + window.grace_ms
    if isinstance(window, Sliding):
        return 2 * window.difference_ms + window.grace_ms
    return window.size_ms + window.grace_ms


class BufferPolicy(Policy):
    """How much may be held, and what happens when that is full; without bounds it never is."""

    records: Annotated[int, Field(strict=True, ge=0, le=COUNT_MAX)] | None = None
    """The most records that a partition holds."""
    bytes: SizeBytes | None = None
    """The most bytes that a partition holds, counted as Kafka Streams counts them."""
    when_full: Literal["emit-early", "shut-down", "spill"] | None = None
    """Release the oldest records, stop the service, or keep the rest on disk alone."""

    @model_validator(mode="after")
    def _bound_and_answer_together(self) -> BufferPolicy:
        bounded = self.records is not None or self.bytes is not None
        if bounded and self.when_full is None:
            message = "a bound needs an answer; add `when-full: emit-early`, `shut-down` or `spill`"
            raise ValueError(message)
        if not bounded and self.when_full is not None:
            message = "`when-full` needs a bound; add `records` or `bytes`"
            raise ValueError(message)
        return self


class OperatorPolicy(Policy):
    """The options that every operator has."""

    name: Name | None = None
    """Unique in the pipeline; the operator's kind if absent."""
    store: Name | None = None
    """The name of the operator's state; the operator's name if absent."""


class ReorderPolicy(OperatorPolicy):
    """Hold records until no earlier one can come in time (KIP-923)."""

    kind: Literal["reorder"] = "reorder"
    grace_ms: DurationMs
    """How late a record may come; every record waits so long."""
    late: Literal["forward", "drop", "topic"] = "forward"
    """The way of a record that comes later than `grace` allows."""
    buffer: BufferPolicy = BufferPolicy()
    idle_ms: WaitMs = None
    """Release everything after such a silence of the source by the wall clock; or `never`.

    `never` if absent.
    """


class MergePolicy(OperatorPolicy):
    """Bring records of many source partitions into one order; only a hop adds it, no file does."""

    kind: Literal["merge"] = "merge"
    buffer: Annotated[BufferPolicy, Field(exclude=True)] = BufferPolicy()
    """The bounds of its memory, which no state remembers: the process that runs it sets them."""


class DeduplicatePolicy(OperatorPolicy):
    """Forward the first record of an id, drop the others within the interval (KIP-655)."""

    kind: Literal["deduplicate"] = "deduplicate"
    by: Literal["key", "key+id", "id"] = "key"
    """Two records are duplicates if these are equal; `id` looks across all partitions."""
    id: SelectorText | None = None
    """A selector: `value.event_id`, `header.id`, `key`, `module:function`."""
    interval_ms: DurationMs
    """How far apart two duplicates may be in time, both ends included."""
    late: Literal["forward", "drop", "topic"] = "forward"
    """The way of a record that is older than the interval and has no known duplicate."""

    @model_validator(mode="after")
    def _id_where_needed(self) -> DeduplicatePolicy:
        if self.by == "key" and self.id is not None:
            message = "`by: key` takes no `id`; remove it, or write `by: key+id` or `by: id`"
            raise ValueError(message)
        if self.by != "key" and self.id is None:
            message = f"`by: {self.by}` needs an `id`, such as `id: value.event_id`"
            raise ValueError(message)
        return self


class DistinctPolicy(OperatorPolicy):
    """Forward the first record of each key and window (KIP-655's first proposal)."""

    kind: Literal["distinct"] = "distinct"
    window: Annotated[Tumbling | Session, Field(discriminator="kind")]
    late: Literal["drop", "topic"] = "drop"
    """Drop a record whose window is closed, or send it to the late topic."""

    @field_validator("window", mode="before")
    @classmethod
    def _window_of_one(cls, window: object) -> object:
        kind = window.get("kind") if isinstance(window, dict) else getattr(window, "kind", None)
        # A file may hold a list or a mapping here, which cannot be looked up in a set.
        if kind in ("hopping", "sliding"):
            message = (
                f"a record stands in several {kind} windows at once, so it would be the first"
                " in one and a duplicate in another; use a tumbling or a session window"
            )
            raise ValueError(message)
        if kind == "unlimited":
            message = (
                "an unlimited window never closes, so no key could ever be forgotten;"
                " use a tumbling or a session window, or `deduplicate` with a long interval"
            )
            raise ValueError(message)
        return window


class TablePolicy(OperatorPolicy):
    """Latest value by key; the operators behind it see the old value beside the new one."""

    kind: Literal["table"] = "table"


class FilterPolicy(OperatorPolicy):
    """Keep records for which a comparison or a function holds.

    A table's row for which it no longer holds becomes a tombstone.
    """

    kind: Literal["filter"] = "filter"
    where: Annotated[str, AfterValidator(check_where)]
    """A comparison (`value.amount >= 3`, `header.type == "click"`) or `module:function`.

    `value != null` drops tombstones, whatever the values are.
    """


class SamplePolicy(OperatorPolicy):
    """Keep a share of the keys, each with all of its records."""

    kind: Literal["sample"] = "sample"
    every: Annotated[int, Field(ge=2, le=COUNT_MAX)]
    """One key of so many is kept."""


class AggregatePolicy(OperatorPolicy):
    """One value for many records, by key and, if there is a `window`, by window."""

    kind: Literal["aggregate"] = "aggregate"
    function: Annotated[str, AfterValidator(check_aggregate_function)]
    """count, sum, min, max, first, last, collect, or `module:name` of one of yours.

    Yours is an object with initial, add and merge.
    """
    of: SelectorText | None = None
    """A selector of the values to aggregate; the whole value if absent."""
    window: Window | None = None
    """One result for each key and window; without it one result for each key, for ever."""
    retention_ms: DurationMs | None = None
    """How long a window can be looked up; at least what accepting late records needs."""
    late: Literal["drop", "topic"] = "drop"
    """Drop a record whose windows are all closed, or send it to the late topic."""

    @model_validator(mode="after")
    def _nothing_of_count(self) -> AggregatePolicy:
        if self.function == "count" and self.of is not None:
            message = "`function: count` counts records, not what is in them; remove `of`"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _retention_covers_grace(self) -> AggregatePolicy:
        if self.retention_ms is None:
            return self
        if self.window is None or isinstance(self.window, Unlimited):
            message = (
                "`retention` says how long closed windows are kept, and here no window ever closes;"
                " remove it, or add a `window` that closes"
            )
            raise ValueError(message)
        needed_ms = retention_needed_ms(self.window)
        if self.retention_ms < needed_ms:
            message = (
                f"`retention: {format_duration_ms(self.retention_ms)}` is shorter than this"
                f" {self.window.kind} window accepts records for;"
                f" make it at least {format_duration_ms(needed_ms)}, or remove it"
            )
            raise ValueError(message)
        return self


class SuppressPolicy(OperatorPolicy):
    """Hold updates until a time limit, or until their window is closed (KIP-328)."""

    kind: Literal["suppress"] = "suppress"
    until: Literal["time-limit", "window-closes"]
    """`time-limit`: one update a key and limit; `window-closes`: one final result a window."""
    limit_ms: DurationMs | None = None
    """How long the first held update of a key waits; a later one takes its place, not its time."""
    window: Window | None = None
    """The window that another service made; if absent, that of the aggregate before it."""
    buffer: BufferPolicy = BufferPolicy()

    @model_validator(mode="after")
    def _limit_where_needed(self) -> SuppressPolicy:
        if self.until == "time-limit" and self.limit_ms is None:
            message = "`until: time-limit` needs a `limit`, such as `limit: 30s`"
            raise ValueError(message)
        if self.until == "window-closes" and self.limit_ms is not None:
            message = "`until: window-closes` takes no `limit`: a window's grace decides; remove it"
            raise ValueError(message)
        if self.until == "window-closes" and self.buffer.when_full == "emit-early":
            message = (
                "final results cannot be emitted early (KIP-328);"
                " use `when-full: shut-down` or `spill`, or `until: time-limit`"
            )
            raise ValueError(message)
        return self


AnyOperator = Annotated[
    ReorderPolicy
    | MergePolicy
    | DeduplicatePolicy
    | DistinctPolicy
    | TablePolicy
    | FilterPolicy
    | SamplePolicy
    | AggregatePolicy
    | SuppressPolicy,
    Field(discriminator="kind"),
]

OPERATOR_KINDS: dict[str, type[OperatorPolicy]] = {
    "reorder": ReorderPolicy,
    "deduplicate": DeduplicatePolicy,
    "distinct": DistinctPolicy,
    "table": TablePolicy,
    "filter": FilterPolicy,
    "sample": SamplePolicy,
    "aggregate": AggregatePolicy,
    "suppress": SuppressPolicy,
}

_OPERATOR: TypeAdapter[AnyOperator] = TypeAdapter(AnyOperator)


def read_operator(fields: object) -> AnyOperator:
    """Return the policy that `model_dump` wrote."""
    return _OPERATOR.validate_python(fields)
