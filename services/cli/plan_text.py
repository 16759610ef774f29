"""Plain words for the options of a pipeline: their meaning and their cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.contracts.pipeline import PipelineSpec, Source
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    DistinctPolicy,
    FilterPolicy,
    Hopping,
    MergePolicy,
    ReorderPolicy,
    SamplePolicy,
    Session,
    Sliding,
    SuppressPolicy,
    TablePolicy,
    Tumbling,
    Unlimited,
    Window,
)
from headrace.contracts.selector_text import RECORD_TIMESTAMP, parse_selector
from headrace.contracts.time import format_duration_ms as duration
from headrace.contracts.topics import keeps_state, repartition_topic
from headrace.services.cli.state_size import Traffic, format_bytes, state_bytes_max
from headrace.services.operators.windows.held_windows import may_share


class Line(NamedTuple):
    """One option as it is written, and what it means."""

    option: str
    meaning: str


def explain_source(source: Source) -> Iterator[Line]:
    """Explain the options of the source."""
    meaning = "each record's own timestamp counts"
    if source.timestamp != RECORD_TIMESTAMP:
        meaning = f"event time is {_selected(source.timestamp)}; a record without it goes dead"
    yield Line(f"timestamp: {source.timestamp}", meaning)
    if source.values == "registry":
        yield Line("values: registry", "a value is read by the schema that its number names")
    if source.max_future_ms is not None:
        ahead = duration(source.max_future_ms)
        yield Line(
            f"max-future: {ahead}", f"a record more than {ahead} ahead of the clock goes dead"
        )


def explain_waits(spec: PipelineSpec) -> Iterator[Line]:
    """For what is waited, and for what it is not."""
    if spec.source.max_delay_ms is not None:
        delay = duration(spec.source.max_delay_ms)
        meaning = (
            "a partition at its end is as far as the clock less that; what comes later is late"
        )
        yield Line(f"max-delay: {delay}", meaning)
    if spec.source.idle_ms is None:
        meaning = "a partition that is silent is waited for, however long"
        if spec.source.max_delay_ms is not None:
            meaning = "nobody guesses that a silent partition stays silent: the clock says how far"
        yield Line("idle: never", meaning)
    else:
        idle = duration(spec.source.idle_ms)
        meaning = "a partition at its end that was silent for so long is not waited for"
        yield Line(f"idle: {idle}", meaning)
    if len(spec.hops()) > 1:
        skew = duration(spec.max_skew_ms())
        meaning = "a partition that is ahead of the slowest by more is read no further until then"
        yield Line(f"max-skew: {skew}", meaning)


def explain_failure(spec: PipelineSpec) -> Iterator[Line]:
    """Explain where a record goes that an operator fails on."""
    meaning = f"a record that an operator fails on goes to {spec.dead.topic}"
    if spec.on_failure == "stop":
        meaning = "the sidecar ends at a record that an operator fails on"
    yield Line(f"on-failure: {spec.on_failure}", meaning)


def explain_operator(policy: AnyOperator, spec: PipelineSpec) -> Iterator[Line]:
    """Explain the options of an operator, and the state that it keeps."""
    match policy:
        case ReorderPolicy():
            yield from _explain_reorder(policy, spec)
        case MergePolicy():
            yield Line("waits", "until every source partition that is awake is as far")
        case DeduplicatePolicy():
            yield from _explain_deduplicate(policy, spec)
        case DistinctPolicy():
            yield from _explain_distinct(policy, spec)
        case TablePolicy():
            yield Line("keeps", "the newest value of every key, until a tombstone removes it")
        case FilterPolicy() | SamplePolicy():
            yield _explain_passing(policy, spec)
        case AggregatePolicy():
            yield from _explain_aggregate(policy, spec)
        case SuppressPolicy():
            yield from _explain_suppress(policy)
    if keeps_state(policy):
        changelog = next(hop.changelog.name for hop in spec.hops() if policy in hop.operators)
        yield Line("state", f"on disk, and again in {changelog}")


def explain_size(
    policy: AnyOperator, spec: PipelineSpec, traffic: Traffic | None
) -> Iterator[Line]:
    """How much an operator keeps, if somebody said how many records come."""
    size = None if traffic is None else state_bytes_max(policy, traffic)
    if size is not None and _holder(policy, spec) is None:
        yield Line("size", f"at most about {format_bytes(size)} over all partitions")


def _explain_reorder(policy: ReorderPolicy, spec: PipelineSpec) -> Iterator[Line]:
    grace = duration(policy.grace_ms)
    if policy.grace_ms == 0:
        yield Line(f"grace: {grace}", "nothing waits, no record is late, and nothing is kept")
        return
    meaning = f"a record waits for one that is {grace} later by timestamp, then leaves in order"
    yield Line(f"grace: {grace}", meaning)
    yield Line(f"late: {policy.late}", f"a record that comes later {_late(policy.late, spec)}")
    if policy.idle_ms is not None:
        idle = duration(policy.idle_ms)
        meaning = f"after {idle} of silence at the partition's end all that waits leaves"
        yield Line(f"idle: {idle}", meaning)
    elif spec.source.max_delay_ms is None:
        wait = "also wait" if spec.source.idle_ms is None else "do not wait"
        yield Line("no idle", f"a quiet partition's last records stay; its readers {wait} for them")
    yield from _explain_buffer(policy.buffer)
    yield Line("keeps", f"every record of the last {grace} of event time")


def _explain_deduplicate(policy: DeduplicatePolicy, spec: PipelineSpec) -> Iterator[Line]:
    interval = duration(policy.interval_ms)
    yield Line(f"by: {policy.by}", _DUPLICATES[policy.by])
    if policy.by == "id":
        topic = repartition_topic(spec.pipeline, str(policy.name))
        meaning = f"every record is written to {topic.name} and read again: twice the traffic"
        yield Line("costs", meaning)
    if policy.id is not None:
        meaning = f"the id is {_selected(policy.id)}; a record without one is forwarded"
        yield Line(f"id: {policy.id}", meaning)
    meaning = f"at most {interval} apart by timestamp; the first is forwarded, the rest is dropped"
    yield Line(f"interval: {interval}", meaning)
    meaning = (
        f"a record older than the interval that has no known duplicate {_late(policy.late, spec)}"
    )
    yield Line(f"late: {policy.late}", meaning)
    yield Line("keeps", f"one small row for each id of the last {interval} of event time")


_DUPLICATES = {
    "key": "two records with one key are duplicates",
    "key+id": "two records with one key and one id are duplicates",
    "id": "two records with one id are duplicates, whatever their keys and partitions",
}


def _explain_distinct(policy: DistinctPolicy, spec: PipelineSpec) -> Iterator[Line]:
    yield _explain_window(policy.window)
    yield Line("keeps", "one small row for each key and open window; the first record is forwarded")
    meaning = f"a record whose window is closed {_late(policy.late, spec)}"
    yield Line(f"late: {policy.late}", meaning)


def _explain_passing(policy: FilterPolicy | SamplePolicy, spec: PipelineSpec) -> Line:
    if isinstance(policy, SamplePolicy):
        meaning = "one key in so many is kept with all its records; the others end here"
        return Line(f"every: {policy.every}", meaning)
    before = spec.operators[: spec.operators.index(policy)]
    meaning = "a record for which this does not hold ends here"
    if _are_rows(before):
        meaning = "a row for which it holds no more becomes a tombstone; others end here"
    return Line(f"where: {policy.where}", meaning)


def _are_rows(before: Sequence[AnyOperator]) -> bool:
    """Return whether what these operators emit replaces what they have emitted of its key."""
    are_rows = False
    for policy in before:
        match policy:
            case TablePolicy() | AggregatePolicy():
                are_rows = True
            case FilterPolicy() | SamplePolicy() | SuppressPolicy(until="time-limit"):
                pass
            case _:
                are_rows = False
    return are_rows


def _explain_aggregate(policy: AggregatePolicy, spec: PipelineSpec) -> Iterator[Line]:
    results = "one result a key" if policy.window is None else "one result a key and window"
    yield Line(f"function: {policy.function}", f"{results}, written anew at each record")
    if policy.of is not None:
        yield Line(f"of: {policy.of}", f"what is taken from a record: {_selected(policy.of)}")
    if policy.window is None:
        yield Line("keeps", "one result for every key there ever was")
        return
    yield _explain_window(policy.window)
    meaning = f"a record all of whose windows are closed {_late(policy.late, spec)}"
    yield Line(f"late: {policy.late}", meaning)
    holder = _holder(policy, spec)
    if holder is not None:
        yield Line("keeps", f"nothing itself: `{holder.name}` behind it holds its results")
    elif policy.retention_ms is None:
        yield Line("keeps", "one result for each key and window that can still change")
    else:
        retention = duration(policy.retention_ms)
        meaning = f"one result for each key and window of the last {retention}, to be looked up"
        yield Line(f"retention: {retention}", meaning)


def _holder(policy: AnyOperator, spec: PipelineSpec) -> AnyOperator | None:
    """Return the operator that holds the results of this one, None if it keeps them itself."""
    behind = next(iter(spec.operators[spec.operators.index(policy) + 1 :]), None)
    return behind if may_share(policy, behind) else None


def _explain_suppress(policy: SuppressPolicy) -> Iterator[Line]:
    if policy.limit_ms is not None:
        limit = duration(policy.limit_ms)
        meaning = f"a key's update waits for {limit} of event time; a later one takes its place"
        yield Line(f"until: {policy.until}", "at most one update a key and limit leaves, the last")
        yield Line(f"limit: {limit}", meaning)
    else:
        yield Line(f"until: {policy.until}", "one final result a key and window, and no other")
        if policy.window is not None:
            yield _explain_window(policy.window)
    yield from _explain_buffer(policy.buffer)
    yield Line("keeps", "the last update of each key that waits")


def _explain_buffer(buffer: BufferPolicy) -> Iterator[Line]:
    bounds = []
    if buffer.records is not None:
        bounds.append(f"{buffer.records} records")
    if buffer.bytes is not None:
        bounds.append(format_bytes(buffer.bytes))
    if buffer.when_full is None:
        yield Line("buffer", "without a bound; what does not fit into memory lies on disk")
        return
    yield Line("buffer", f"at most {' and '.join(bounds)} a partition")
    yield Line(f"when-full: {buffer.when_full}", _WHEN_FULL[buffer.when_full])


_WHEN_FULL = {
    "emit-early": "the oldest leaves before its time",
    "shut-down": "the service stops with exit code 5, and nothing is lost",
    "spill": "the bound is one on memory; the rest lies on disk alone, which is slower",
}


def _explain_window(window: Window) -> Line:
    match window:
        case Tumbling():
            text = f"{duration(window.size_ms)} each, one after another"
        case Hopping():
            text = f"{duration(window.size_ms)} each, a new one every {duration(window.advance_ms)}"
        case Session():
            text = f"as long as no silence is longer than {duration(window.gap_ms)}"
        case Sliding():
            text = f"records at most {duration(window.difference_ms)} apart"
        case Unlimited():
            return Line("window: unlimited", "one window that never closes")
    text += f"; open for {duration(window.grace_ms)} more, for records that come late"
    return Line(f"window: {window.kind}", text)


def _late(policy: str, spec: PipelineSpec) -> str:
    if policy == "topic":
        return f"goes to {spec.late.topic}"
    return "leaves at once" if policy == "forward" else "is dropped, and counted"


def _selected(text: str) -> str:
    selector = parse_selector(text)
    match selector.place:
        case "key":
            return "the record's key"
        case "header":
            return f"the last header `{selector.path[0]}`"
        case "function":
            return f"what `{text}` returns"
        case "value":
            field = ".".join(selector.path)
            return f"the field `{field}` of the JSON value" if field else "the whole value"
