"""Runs vectors of deduplication, suppression and windows through the operators of the sidecar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from headrace.contracts.decision import Reason
from headrace.contracts.errors import HeadraceError
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import AnyOperator
from headrace.contracts.record import Record
from headrace.contracts.window import plain_key, window_of
from headrace.services.operators.chain import Chain
from headrace.services.operators.deduplicate import Deduplicate
from headrace.services.operators.operator import Batch
from headrace.services.operators.suppress import Suppress
from headrace.services.state.overlay import Overlay
from headrace.services.state.store import Store
from tests.conformance.compare import Run, compare
from tests.conformance.pipelines import operators_of
from tests.conformance.vectors import Vector, is_record, record_of

OpenStore = Callable[[], Store]
_DROPS = (Reason.NULL_KEY, Reason.NULL_VALUE)


def run_vector(vector: Vector, batch_size: int, open_store: OpenStore) -> list[str]:
    """Every disagreement between a vector and the operators, in words; none is what we want."""
    try:
        policies = _policies(vector)
    except (ValidationError, HeadraceError) as refusal:
        return compare(vector, Run(refused=str(refusal)), batch_size)
    tasks: dict[int, _Task] = {}
    run = Run()
    for first, records in _batches(vector["input"], batch_size):
        for partition, batch in _by_task(vector, first, records):
            task = tasks.get(partition)
            if task is None:
                task = tasks[partition] = _Task(policies, open_store())
            task.process(batch, run)
        last = first + len(records) - 1
        run.outputs.sort(key=lambda output: output["after_input"])
        run.traces["store_trace", last] = sum(task.live_ids() for task in tasks.values())
        for task in tasks.values():
            run.traces["buffer_trace", last] = task.buffer()
        if run.failed_at is not None:
            break
    for task in tasks.values():
        run.metrics |= task.metrics()
        task.close()
    return compare(vector, run, batch_size)


class _Task:
    """A chain over one partition, committed after every batch."""

    def __init__(self, policies: Sequence[AnyOperator], store: Store) -> None:
        self._store = store
        self._overlay = Overlay(store, "conformance")
        self._chain = Chain(policies, self._overlay.view)

    def process(self, batch: Batch, run: Run) -> None:
        step = self._chain.process(batch)
        run.outputs += map(_output, step.forwarded.records, step.forwarded.causes)
        if step.failure is not None:
            run.failed_at = step.failure.cause
            return
        if imbalance := self._chain.imbalance():
            run.problems.append(f"records were lost or invented: {imbalance}")
        self._chain.save()
        self._overlay.commit({})

    def live_ids(self) -> int:
        """How many ids a deduplication remembers."""
        first = self._chain.operators[0]
        return sum(1 for _ in first.live_ids()) if isinstance(first, Deduplicate) else 0

    def buffer(self) -> list[int]:
        """How many records a suppression holds, and their weight."""
        last = self._chain.operators[-1]
        return [last.counts.held, last.weight] if isinstance(last, Suppress) else [0, 0]

    def metrics(self) -> dict[str, float]:
        """Kafka Streams' metrics, from our counters."""
        counts = [operator.counts for operator in self._chain.operators]
        refused = sum(count.windows_refused for count in counts)
        dropped = sum(count.dropped.get(reason, 0) for count in counts for reason in _DROPS)
        lateness = self._chain.lateness
        metrics = {
            "dropped_records_total": float(refused + dropped),
            "record_lateness_avg": lateness.sum_ms / max(1, lateness.records),
            "record_lateness_max": float(lateness.max_ms),
        }
        last = self._chain.operators[-1]
        if isinstance(last, Suppress):
            samples = last.samples
            metrics |= {
                "suppression_emit_total": float(last.counts.forwarded),
                "suppression_buffer_size_avg": samples.size_sum / samples.samples,
                "suppression_buffer_size_max": float(samples.size_max),
                "suppression_buffer_count_avg": samples.count_sum / samples.samples,
                "suppression_buffer_count_max": float(samples.count_max),
            }
        return metrics

    def close(self) -> None:
        self._store.close()


def _policies(vector: Vector) -> tuple[AnyOperator, ...]:
    """The pipeline that a vector describes, read as a pipeline file is."""
    topics = {"source": {"topic": "input"}, "sink": {"topic": "cleaned"}}
    written = {"pipeline": "conformance", "operators": operators_of(vector)}
    return PipelineSpec.model_validate(topics | written).operators


def _batches(inputs: list[Any], size: int) -> Iterator[tuple[int, list[Any]]]:
    for first in range(0, len(inputs), size):
        yield first, inputs[first : first + size]


def _by_task(vector: Vector, first: int, inputs: list[Any]) -> Iterator[tuple[int, Batch]]:
    """The batch of each task; an id is global, everything else is per partition."""
    batches: dict[int, Batch] = {}
    is_global = vector["config"].get("by") == "id"
    for cause, entry in enumerate(inputs, first):
        if is_record(entry):
            partition = 0 if is_global else entry.get("partition", 0)
            batches.setdefault(partition, Batch([], [])).append(record_of(entry), cause, None)
    yield from batches.items()


def _output(record: Record, cause: int) -> dict[str, Any]:
    window = window_of(record.headers)
    key: Any = record.key
    if window is not None and record.key is not None:
        plain = plain_key(record.key, window).decode()
        key = {"key": plain, "start": window.start_ms, "end": window.end_ms}
    elif record.key is not None:
        key = record.key.decode()
    headers = {
        name: None if value is None else value.decode()
        for name, value in record.headers
        if not name.startswith("headrace.")
    }
    return {
        "after_input": cause,
        "key": key,
        "value": record.value,
        "ts": record.timestamp_ms,
        "headers": headers,
    }
