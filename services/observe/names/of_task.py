"""Metrics of a task, which is a partition of a hop."""

from __future__ import annotations

from headrace.services.observe import readings
from headrace.services.observe.names.metric import Metric
from headrace.services.observe.readings import seconds
from headrace.services.observe.snapshot import TaskSnapshot

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
        "headrace_unsent_dead_records_total", "counter",
        "Records that left the operators and went to the dead-letter topic: larger than what their"
        " topic takes, or without a readable id where records go on by id.",
        readings.unsent, by="reason",
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
        "headrace_progress_behind_seconds", "gauge",
        "How far that is behind the clock. It is not there while the partition is idle.",
        lambda task: seconds(task.behind_ms),
    ),
    Metric(
        "headrace_skew_seconds", "gauge",
        "Before a repartition: how far it is ahead of the slowest.",
        lambda task: seconds(task.skew_ms),
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
