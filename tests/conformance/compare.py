"""Compares what came out with what must come out, and says every difference in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.vectors import Vector, bytes_of

_AVERAGES_DIGITS = 6


@dataclass
class Run:
    """The output for a vector's input."""

    outputs: list[dict[str, Any]] = field(default_factory=list)
    """As in the vectors, but for `value`, which is bytes."""
    refused: str | None = None
    failed_at: int | None = None
    traces: dict[tuple[str, int], Any] = field(default_factory=dict)
    """By name and index of the batch's last input."""
    metrics: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def compare(vector: Vector, run: Run, batch_size: int) -> list[str]:
    """Every disagreement, each with the input that it belongs to."""
    return [
        *run.problems,
        *_errors(vector, run),
        *_outputs(vector, run),
        *_traces(vector, run),
        *_metrics(vector, run, batch_size),
    ]


def _errors(vector: Vector, run: Run) -> Iterator[str]:
    error = vector.get("error") or {}
    if error.get("phase") in {"build", "start"}:
        if run.refused is None:
            yield f"expected to be refused ({error['message']}), but it was not"
    elif run.refused is not None:
        yield f"was refused: {run.refused}"
    elif error.get("after_input") != run.failed_at:
        expected = f"at input {error['after_input']}" if error else "nowhere"
        got = "nowhere" if run.failed_at is None else f"at input {run.failed_at}"
        yield f"expected to fail {expected}, failed {got}"


def _outputs(vector: Vector, run: Run) -> Iterator[str]:
    expected = vector["output"]
    for index in range(max(len(expected), len(run.outputs))):
        want = expected[index] if index < len(expected) else None
        got = run.outputs[index] if index < len(run.outputs) else None
        if want is None or got is None or not _same(want, got):
            place = (want or got or {}).get("after_input")
            yield f"input {place}: expected {want}, got {got}"
            # The outputs behind a missing or extra one are shifted, and would only repeat this.
            return


def _same(want: dict[str, Any], got: dict[str, Any]) -> bool:
    return bool(
        want["after_input"] == got["after_input"]
        and want["key"] == got["key"]
        and want["ts"] == got["ts"]
        and bytes_of(want["value"]) == got["value"]
        and (want.get("headers") or {}) == got["headers"]
    )


def _traces(vector: Vector, run: Run) -> Iterator[str]:
    for (name, index), got in run.traces.items():
        trace = vector.get(name)
        if trace is not None and run.failed_at is None and trace[index] != got:
            yield f"input {index}: {name} expected {trace[index]}, got {got}"


def _metrics(vector: Vector, run: Run, batch_size: int) -> Iterator[str]:
    """A run that failed inside a batch had read further than Kafka Streams when it stopped."""
    if run.refused is not None or (run.failed_at is not None and batch_size > 1):
        return
    moved_the_clock = any("advance_wall_clock_ms" in entry for entry in vector["input"])
    for name, want in vector.get("metrics", {}).items():
        if name.endswith("_avg") and moved_the_clock:
            continue
        got = run.metrics.get(name)
        if got is None or round(got, _AVERAGES_DIGITS) != round(want, _AVERAGES_DIGITS):
            yield f"metric {name}: expected {want}, got {got}"
