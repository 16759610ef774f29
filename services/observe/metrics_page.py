"""METRICS.md, written from the table of names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.services.observe.names.metric import (
    HISTOGRAM_LABELS,
    OPERATOR_LABELS,
    PIPELINE,
    TASK_LABELS,
)
from headrace.services.observe.names.of_hop import HISTOGRAMS
from headrace.services.observe.names.of_operator import OPERATOR
from headrace.services.observe.names.of_task import TASK
from headrace.services.observe.names.of_worker import WORKER

_HEAD = """\
# Metrics

Every metric that a worker shows at `/metrics`, in Prometheus' text format. This page is written by
`make metrics`, from the table in `services/observe/names/`.

- Labels are bounded by the pipeline and its partitions. No key or value of a record is ever one.
- Times are in seconds, sizes in bytes; the unit stands in the name.
- A counter counts in this process, from its start. A partition that leaves keeps its counters here,
  and goes on from them if it comes back; after a restart records may be decided and counted again.
- A gauge of a partition or operator is there while the partition is.
- *Kafka's name* is what Kafka Streams, its clients or KIP-328 call the same thing. Rates are left
  to Prometheus: `rate(headrace_suppression_emit_total[1m])` is `suppression-emit-rate`.
- Of KIP-328's list Kafka Streams 4.3 has no `late-record-drop` and `expired-window-record-drop`
  (both are in its `dropped-records`), no `…-current` and no `…-overtime`; here they all are.
- `headrace_unbalanced_records` is the one to be woken for: it is zero, or there is a bug.
"""
_FOOT = """\
## The process

`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_virtual_memory_bytes`,
`process_open_fds`, `process_max_fds` and `process_start_time_seconds` are prometheus_client's own,
on Linux. They have no labels.
"""
Row = tuple[str, str, tuple[str, ...], str, str]
"""Name, kind, labels, help, Kafka's name."""


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_sections(), _FOOT])


def _sections() -> Iterator[str]:
    of_worker = [_row(m.name, m.kind, (), m.by, m.help, m.mirrors) for m in WORKER]
    of_task = [_row(m.name, m.kind, TASK_LABELS, m.by, m.help, m.mirrors) for m in TASK]
    of_operator = [_row(m.name, m.kind, OPERATOR_LABELS, m.by, m.help, m.mirrors) for m in OPERATOR]
    of_hop = [
        _row(m.name, "histogram", HISTOGRAM_LABELS, None, m.help, m.mirrors) for m in HISTOGRAMS
    ]
    yield _section("The worker", of_worker)
    yield _section("A partition of a hop", of_task)
    yield _section("An operator of a partition", of_operator)
    yield _section("A hop", of_hop)


def _row(
    name: str, kind: str, labels: tuple[str, ...], by: str | None, meaning: str, mirrors: str | None
) -> Row:
    names = (PIPELINE, *labels) if by is None else (PIPELINE, *labels, by)
    return name, kind, names, meaning, mirrors or ""


def _section(title: str, rows: Iterable[Row]) -> str:
    lines = [f"## {title}", "", "| name | kind | labels | what it says | Kafka's name |"]
    lines.append("|---|---|---|---|---|")
    for name, kind, labels, meaning, mirrors in rows:
        lines.append(f"| `{name}` | {kind} | {', '.join(labels)} | {meaning} | {mirrors} |")
    return "\n".join([*lines, ""])
