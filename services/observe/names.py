"""The one table of all metrics: name, kind, help, whose name it mirrors, and where it comes from.

Labels are bounded: a pipeline has so many hops and operators, a topic so many partitions, a verdict
so many reasons. Never a key, never a value. Times are in seconds, as Prometheus has them. Where a
name is Kafka's (KIP-328 and the rest of Kafka Streams and its clients) it is spelt as Prometheus
spells names, and `mirrors` has it as Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from headrace.services.observe import readings
from headrace.services.observe.histogram import HistogramSnapshot
from headrace.services.observe.readings import Reading, of_memory, of_suppress, only, seconds
from headrace.services.observe.snapshot import OperatorSnapshot, TaskSnapshot, WorkerSnapshot

Of = TypeVar("Of")

PIPELINE = "pipeline"
TASK_LABELS = ("hop", "topic", "partition")
OPERATOR_LABELS = (*TASK_LABELS, "operator")
HISTOGRAM_LABELS = ("hop",)


@dataclass(frozen=True, slots=True)
class Metric(Generic[Of]):
    """One family of series."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    read: Callable[[Of], Reading]
    """Of a counter whole numbers, which add up to the same in any order."""
    by: str | None = None
    """A label of its own, beside those of what it is read from."""
    mirrors: str | None = None
    """Kafka's name for it."""
    divisor: int = 1
    """Units that are read in one unit of the name: 1000 for milliseconds shown as seconds."""


@dataclass(frozen=True, slots=True)
class HistogramMetric:
    """One family of buckets, all partitions of a hop together."""

    name: str
    help: str
    read: Callable[[TaskSnapshot], HistogramSnapshot]
    mirrors: str | None = None


WORKER: tuple[Metric[WorkerSnapshot], ...] = (
    Metric(
        "headrace_worker_info", "gauge",
        "Always 1; the label is the name of this instance.",
        lambda worker: {worker.instance: 1}, by="worker",
    ),
    Metric(
        "headrace_worker_state", "gauge",
        "1 for the state that the worker is in, 0 for the others.",
        readings.worker_states, by="state",
    ),
    Metric(
        "headrace_worker_state_age_seconds", "gauge",
        "How long the worker has been in its state.",
        lambda worker: worker.taken_at_s - worker.since_s,
    ),
    Metric(
        "headrace_tasks", "gauge",
        "Tasks (partitions of hops) of this worker, by their state.",
        readings.tasks_by_state, by="state",
    ),
    Metric(
        "headrace_rebalances_total", "counter",
        "Rebalances of the group that this worker took part in.",
        lambda worker: worker.rebalances, mirrors="rebalance-total",
    ),
    Metric(
        "headrace_paused_seconds_total", "counter",
        "How long partitions stood still here in rebalances: while they were given up, and from"
        " when they were given to this worker until they ran. One that stays adds nothing.",
        lambda worker: dict(worker.paused_ms), by="task", divisor=1000,
    ),
    Metric(
        "headrace_copies", "gauge",
        "Copies of state that this worker keeps up: of partitions that it learns in order to run"
        " them, and in case that others die.",
        readings.copies_by_role, by="role",
    ),
    Metric(
        "headrace_copy_lag_records", "gauge",
        "How many changelog records a copy lacks.",
        readings.copy_lags, by="task",
    ),
    Metric(
        "headrace_heartbeat_age_seconds", "gauge",
        "How long ago the coordinator of the group last answered.",
        readings.heartbeat_age_seconds, mirrors="last-heartbeat-seconds-ago",
    ),
    Metric(
        "headrace_state_block_cache_bytes", "gauge",
        "Memory in use by RocksDB for all state: blocks, indexes, blooms and write buffers.",
        of_memory(lambda memory: memory.block_cache_bytes),
        mirrors="block-cache-usage",
    ),
    Metric(
        "headrace_state_write_buffer_bytes", "gauge",
        "The part of it that write buffers take.",
        of_memory(lambda memory: memory.write_buffer_bytes),
        mirrors="size-all-mem-tables",
    ),
    Metric(
        "headrace_state_memory_limit_bytes", "gauge",
        "What RocksDB may take in this process.",
        of_memory(lambda memory: memory.limit_bytes),
        mirrors="block-cache-capacity",
    ),
)  # fmt: skip
"""One series a process, or one for each value of the metric's own label."""

TASK: tuple[Metric[TaskSnapshot], ...] = (
    Metric(
        "headrace_taken_records_total", "counter",
        "Records of the partition that were decided: given to the operators, or turned away.",
        lambda task: task.taken_records, mirrors="process-total",
    ),
    Metric(
        "headrace_taken_bytes_total", "counter",
        "Bytes of keys and values of these records.",
        lambda task: task.taken_bytes, mirrors="bytes-consumed-total",
    ),
    Metric(
        "headrace_guarded_records_total", "counter",
        "Records turned away because state says that they were processed before.",
        lambda task: task.guarded_records,
    ),
    Metric(
        "headrace_repeated_records_total", "counter",
        "Records processed once more for the state alone, since the changelog had lost their rows.",
        lambda task: task.repeated_records,
    ),
    Metric(
        "headrace_intake_dead_records_total", "counter",
        "Records that could not be read and went to the dead-letter topic before any operator.",
        readings.intake_dead, by="reason",
    ),
    Metric(
        "headrace_intake_ahead_records_total", "counter",
        "Records more than an hour ahead of the clock that were taken: what comes later is late by"
        " their time. With `max-future` in the source they go to the dead-letter topic instead.",
        lambda task: task.intake_ahead,
    ),
    Metric(
        "headrace_waiting_records", "gauge",
        "Records that were fetched and are not decided yet.",
        lambda task: task.waiting_records,
    ),
    Metric(
        "headrace_waiting_bytes", "gauge",
        "Bytes of their keys and values; a fetched batch counts until all of it is decided.",
        lambda task: task.waiting_bytes,
    ),
    Metric(
        "headrace_uncommitted_records", "gauge",
        "Records that are decided and not committed yet.",
        lambda task: task.uncommitted_records,
    ),
    Metric(
        "headrace_position_offset", "gauge",
        "The source offset that is decided next.",
        lambda task: task.position,
    ),
    Metric(
        "headrace_committed_offset", "gauge",
        "The source offset from which a restart goes on.",
        lambda task: task.committed,
    ),
    Metric(
        "headrace_end_offset", "gauge",
        "The end of the partition (high water mark).",
        lambda task: task.end,
    ),
    Metric(
        "headrace_lag_records", "gauge",
        "How far the position is behind the end; offsets without a record count as well.",
        lambda task: readings.ahead(task.end, task.position), mirrors="records-lag",
    ),
    Metric(
        "headrace_open_transaction_records", "gauge",
        "Offsets that nobody may read yet, because a transaction of their producer is open.",
        lambda task: readings.ahead(task.end, task.readable_end),
    ),
    Metric(
        "headrace_progress_timestamp_seconds", "gauge",
        "The lowest timestamp that a later record on time can have, as of the last commit.",
        lambda task: seconds(task.progress_ms),
    ),
    Metric(
        "headrace_skew_seconds", "gauge",
        "Before a repartition: how far it is ahead of the slowest.", lambda it: seconds(it.skew_ms),
    ),
    Metric(
        "headrace_waits_for_partition", "gauge",
        "The source partition that it waits for, if it does.", lambda task: task.waits_for,
    ),
    Metric(
        "headrace_record_lateness_avg_seconds", "gauge",
        "How late records came on average since the task was opened; records on time count as 0.",
        readings.lateness_avg_seconds, mirrors="record-lateness-avg (KIP-328)",
    ),
    Metric(
        "headrace_record_lateness_max_seconds", "gauge",
        "The greatest lateness since the task was opened: the grace that would have been needed.",
        lambda task: task.lateness.max_ms / 1000, mirrors="record-lateness-max (KIP-328)",
    ),
    Metric(
        "headrace_record_lateness_seconds_total", "counter",
        "Lateness of all records added up, for the average over any range.",
        lambda task: task.lateness.sum_ms, divisor=1000,
    ),
    Metric(
        "headrace_unbalanced_records", "gauge",
        "What came in less verdicts and what is held, at the intake and at every operator. Zero,"
        " or records were lost (above zero) or invented (below): a bug of headrace.",
        readings.unbalanced, by="operator",
    ),
    Metric(
        "headrace_intermediate_result_suppression_overtime_min_seconds", "gauge",
        "How much longer a suppress waits than the greatest lateness would have needed; not shown"
        " behind a reorder, which gives it records in another order.",
        readings.overtime_min_seconds, by="operator",
        mirrors="intermediate-result-suppression-overtime-min (KIP-328)",
    ),
    Metric(
        "headrace_intermediate_result_suppression_overtime_avg_seconds", "gauge",
        "How much longer a suppress waits than the average lateness would have needed.",
        readings.overtime_avg_seconds, by="operator",
        mirrors="intermediate-result-suppression-overtime-avg (KIP-328)",
    ),
    Metric(
        "headrace_commits_total", "counter",
        "Commits of the partition that succeeded.",
        lambda task: task.commits, mirrors="commit-total",
    ),
    Metric(
        "headrace_failed_commits_total", "counter",
        "Commits that failed; each ends the task, which begins again from what is committed.",
        lambda task: task.failed_commits,
    ),
    Metric(
        "headrace_restored_records_total", "counter",
        "Changelog records from which state was restored.",
        lambda task: task.restored_records, mirrors="restore-total",
    ),
    Metric(
        "headrace_restore_seconds_total", "counter",
        "Time spent restoring.",
        lambda task: task.restore_ms, divisor=1000,
    ),
    Metric(
        "headrace_restore_remaining_records", "gauge",
        "Changelog offsets that are still to be restored.",
        lambda task: task.restore_remaining, mirrors="restore-remaining-records-total",
    ),
)  # fmt: skip
"""One series a partition of a hop."""

OPERATOR: tuple[Metric[OperatorSnapshot], ...] = (
    Metric(
        "headrace_operator_taken_records_total", "counter",
        "Records that came to the operator.",
        lambda operator: operator.counts.taken, mirrors="process-total",
    ),
    Metric(
        "headrace_forwarded_records_total", "counter",
        "Records that left for what follows as themselves, those that were held included.",
        lambda operator: operator.counts.forwarded,
    ),
    Metric(
        "headrace_merged_records_total", "counter",
        "Records that live on in an aggregate, or whose key was updated while they were held.",
        only("aggregate", "suppress", read=lambda operator: operator.counts.merged),
    ),
    Metric(
        "headrace_emitted_records_total", "counter",
        "Results that an aggregate made; they are new, nobody brought them in.",
        only("aggregate", read=lambda operator: operator.counts.emitted),
    ),
    Metric(
        "headrace_dropped_records_total", "counter",
        "Records that end at the operator.",
        readings.dropped, by="reason", mirrors="dropped-records-total",
    ),
    Metric(
        "headrace_late_records_total", "counter",
        "Records that left for the late topic.",
        only(
            "reorder", "deduplicate", "distinct", "aggregate",
            read=lambda operator: operator.counts.late,
        ),
    ),
    Metric(
        "headrace_dead_records_total", "counter",
        "Records that the operator could not read and that left for the dead-letter topic.",
        lambda operator: operator.counts.dead,
    ),
    Metric(
        "headrace_failed_records_total", "counter",
        "Those of the dead that the operator, or a function of yours in it, failed on.",
        lambda operator: operator.counts.failed,
    ),
    Metric(
        "headrace_held_records", "gauge",
        "Records that wait in the operator.",
        only("reorder", "suppress", read=lambda operator: operator.counts.held),
    ),
    Metric(
        "headrace_held_bytes", "gauge",
        "Their weight, where it is kept: a reorder keeps it where bytes are bounded.",
        lambda operator: operator.held_bytes,
    ),
    Metric(
        "headrace_stream_time_seconds", "gauge",
        "The latest timestamp that counts; the operator measures waits and grace against it.",
        lambda operator: seconds(operator.stream_time_ms),
    ),
    Metric(
        "headrace_suppression_emit_total", "counter",
        "Updates that a suppress released, early ones included.",
        only("suppress", read=lambda operator: operator.counts.forwarded),
        mirrors="suppression-emit-total (KIP-328)",
    ),
    Metric(
        "headrace_suppression_buffer_size_current_bytes", "gauge",
        "What the buffer of a suppress weighs.",
        only("suppress", read=lambda operator: operator.held_bytes),
        mirrors="suppression-buffer-size-current (KIP-328)",
    ),
    Metric(
        "headrace_suppression_buffer_size_avg_bytes", "gauge",
        "What it weighed on average since the task was opened.",
        of_suppress(lambda suppress: suppress.samples.size_sum / suppress.samples.samples),
        mirrors="suppression-buffer-size-avg (KIP-328)",
    ),
    Metric(
        "headrace_suppression_buffer_size_max_bytes", "gauge",
        "What it weighed at most since the task was opened.",
        of_suppress(lambda suppress: suppress.samples.size_max),
        mirrors="suppression-buffer-size-max (KIP-328)",
    ),
    Metric(
        "headrace_suppression_buffer_count_current", "gauge",
        "Updates in the buffer of a suppress.",
        only("suppress", read=lambda operator: operator.counts.held),
        mirrors="suppression-buffer-count-current (KIP-328)",
    ),
    Metric(
        "headrace_suppression_buffer_count_avg", "gauge",
        "How many there were on average since the task was opened.",
        of_suppress(lambda suppress: suppress.samples.count_sum / suppress.samples.samples),
        mirrors="suppression-buffer-count-avg (KIP-328)",
    ),
    Metric(
        "headrace_suppression_buffer_count_max", "gauge",
        "How many there were at most since the task was opened.",
        of_suppress(lambda suppress: suppress.samples.count_max),
        mirrors="suppression-buffer-count-max (KIP-328)",
    ),
    Metric(
        "headrace_late_record_drop_total", "counter",
        "Records past the grace that were not forwarded; an aggregate counts one for each closed"
        " window.",
        only("reorder", "distinct", "aggregate", read=readings.late_drops),
        mirrors="late-record-drop-total (KIP-328)",
    ),
    Metric(
        "headrace_expired_window_record_drop_total", "counter",
        "Records older than all that the operator remembers, which were not forwarded.",
        only("deduplicate", read=readings.expired_drops),
        mirrors="expired-window-record-drop-total (KIP-328)",
    ),
)  # fmt: skip
"""One series an operator of a partition."""

HISTOGRAMS: tuple[HistogramMetric, ...] = (
    HistogramMetric(
        "headrace_commit_seconds",
        "How long commits took, from flushing the output to the write of the state.",
        lambda task: task.commit_seconds, mirrors="commit-latency-avg, commit-latency-max",
    ),
    HistogramMetric(
        "headrace_commit_records",
        "How many source records a commit had.",
        lambda task: task.commit_records,
    ),
)  # fmt: skip
"""One histogram a hop."""
