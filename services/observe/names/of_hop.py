"""Metrics of a hop, all of its partitions together."""

from __future__ import annotations

from headrace.services.observe.names.metric import HistogramMetric

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
