"""Metrics of an operator of a task."""

from __future__ import annotations

from headrace.services.observe import readings
from headrace.services.observe.names.metric import Metric
from headrace.services.observe.readings import of_suppress, only, seconds
from headrace.services.observe.snapshot import OperatorSnapshot

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
