"""Metrics of a whole worker."""

from __future__ import annotations

from headrace.services.observe import readings
from headrace.services.observe.names.metric import Metric
from headrace.services.observe.readings import of_memory
from headrace.services.observe.snapshot import WorkerSnapshot

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
