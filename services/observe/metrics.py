"""The page of metrics: the table of names, read off a snapshot, as Prometheus' text.

The text is written here and not by prometheus_client, which takes ten times as long for a line: a
worker with 64 partitions has thousands of them, and while they are written nothing else runs.

A counter never goes backwards. A task counts from zero when it is opened, so what it counted is
kept when it closes, and whoever opens the partition again in this process goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import ProcessCollector, generate_latest

from headrace.services.observe.histogram import HistogramSnapshot
from headrace.services.observe.names.metric import (
    HISTOGRAM_LABELS,
    OPERATOR_LABELS,
    PIPELINE,
    TASK_LABELS,
    HistogramMetric,
    Metric,
    Of,
)
from headrace.services.observe.names.of_hop import HISTOGRAMS
from headrace.services.observe.names.of_operator import OPERATOR
from headrace.services.observe.names.of_task import TASK
from headrace.services.observe.names.of_worker import WORKER
from headrace.services.observe.readings import Number
from headrace.services.observe.snapshot import OperatorSnapshot, TaskSnapshot, WorkerSnapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = str
"""Names and values as they are written, each with a comma before it."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metrics:
    """The metrics of one process."""

    def __init__(self, snapshot: Callable[[], WorkerSnapshot]) -> None:
        """Read `snapshot` whenever the page is asked for."""
        self._snapshot = snapshot
        self._retired: dict[str, dict[Labels, Number]] = {}
        self._retired_histograms: dict[str, dict[Labels, HistogramSnapshot]] = {}
        self._process = ProcessCollector(registry=None)

    def retire(self, task: TaskSnapshot) -> None:
        """Keep what a task counted; called in the step in which it leaves the worker's tasks."""
        tasks = [(_task_labels(task), task)]
        for metric in TASK:
            self._keep(metric, tasks)
        operators = list(_operators(tasks))
        for of_operator in OPERATOR:
            self._keep(of_operator, operators)
        for histogram in HISTOGRAMS:
            retired = self._retired_histograms.get(histogram.name, {})
            self._retired_histograms[histogram.name] = _added(histogram, [task], retired)

    def _keep(self, metric: Metric[Of], placed: list[tuple[Labels, Of]]) -> None:
        if metric.kind == "counter":
            # Not all series anew for each of a thousand tasks that leave at once.
            _add(metric, placed, self._retired.setdefault(metric.name, {}))

    def text(self) -> bytes:
        """The page, as of now."""
        worker = self._snapshot()
        tasks = [(_task_labels(task), task) for task in worker.tasks]
        operators = list(_operators(tasks))
        pipeline = _label(PIPELINE, worker.pipeline)[1:]
        lines: list[str] = []
        for of_worker in WORKER:
            lines += self._family(of_worker, [("", worker)], pipeline)
        for of_task in TASK:
            lines += self._family(of_task, tasks, pipeline)
        for of_operator in OPERATOR:
            lines += self._family(of_operator, operators, pipeline)
        for histogram in HISTOGRAMS:
            retired = self._retired_histograms.get(histogram.name, {})
            lines += _buckets(histogram, _added(histogram, worker.tasks, retired), pipeline)
        return "".join(lines).encode() + generate_latest(self._process)

    def _family(
        self, metric: Metric[Of], placed: list[tuple[Labels, Of]], pipeline: Labels
    ) -> Iterator[str]:
        yield from _head(metric.name, metric.kind, metric.help)
        start = f"{metric.name}{{{pipeline}"
        series = _series(metric, placed, self._retired.get(metric.name, {}))
        divisor = metric.divisor
        for labels, number in series.items():
            shown = number if divisor == 1 else number / divisor
            yield f"{start}{labels}}} {shown}\n"


def _series(
    metric: Metric[Of], placed: Iterable[tuple[Labels, Of]], retired: Mapping[Labels, Number]
) -> dict[Labels, Number]:
    """Every series of a metric; counters go on from what was retired."""
    series = dict(retired)
    _add(metric, placed, series)
    return series


def _add(
    metric: Metric[Of], placed: Iterable[tuple[Labels, Of]], series: dict[Labels, Number]
) -> None:
    add = metric.kind == "counter"
    for labels, of in placed:
        reading = metric.read(of)
        if reading is None:
            continue
        if not isinstance(reading, dict):
            series[labels] = series.get(labels, 0) + reading if add else reading
            continue
        for value, number in reading.items():
            own = labels + _label(str(metric.by), value)
            series[own] = series.get(own, 0) + number if add else number


def _added(
    metric: HistogramMetric,
    tasks: Iterable[TaskSnapshot],
    retired: Mapping[Labels, HistogramSnapshot],
) -> dict[Labels, HistogramSnapshot]:
    """The histogram of every hop, all tasks together."""
    added = dict(retired)
    for task in tasks:
        labels = _label(*HISTOGRAM_LABELS, task.hop)
        histogram = metric.read(task)
        added[labels] = added[labels].plus(histogram) if labels in added else histogram
    return added


def _buckets(
    metric: HistogramMetric, added: Mapping[Labels, HistogramSnapshot], pipeline: Labels
) -> Iterator[str]:
    yield from _head(metric.name, "histogram", metric.help)
    for hop, histogram in added.items():
        bounds = [*map(str, histogram.bounds), "+Inf"]
        totals = list(accumulate(histogram.counts))
        for bound, total in zip(bounds, totals, strict=True):
            yield f'{metric.name}_bucket{{{pipeline}{hop},le="{bound}"}} {total}\n'
        yield f"{metric.name}_sum{{{pipeline}{hop}}} {histogram.sum_millionths / 1_000_000}\n"
        yield f"{metric.name}_count{{{pipeline}{hop}}} {totals[-1]}\n"


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}\n"
    yield f"# TYPE {name} {kind}\n"


def _task_labels(task: TaskSnapshot) -> Labels:
    values = (task.hop, task.topic, str(task.partition))
    return "".join(map(_label, TASK_LABELS, values))


def _operators(
    tasks: Iterable[tuple[Labels, TaskSnapshot]],
) -> Iterator[tuple[Labels, OperatorSnapshot]]:
    for labels, task in tasks:
        for operator in task.operators:
            yield labels + _label(OPERATOR_LABELS[-1], operator.name), operator


def _label(name: str, value: str) -> Labels:
    return f',{name}="{value.translate(_ESCAPES)}"'
