"""From what was watched to records per second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from tests.bench.race.outcome import Outcome
from tests.bench.race.worker import Sample, Watched


class Figures(NamedTuple):
    """One run of one contestant; None where it was over too soon to be measured."""

    contestant: str
    operator: str
    guarantee: str
    round: int | str
    start_up_seconds: float
    """Until the first commit was seen."""
    measured_records: int
    steady_per_cpu_second: float | None
    """From the middle of the input on, when compilers that work meanwhile are done."""
    steady_per_second: float | None
    whole_per_cpu_second: float | None
    """From the first commit on."""
    whole_per_second: float | None
    resident_bytes: int
    outputs: int
    checksum: str


class Row(NamedTuple):
    """All rounds of one contestant: median, least and most."""

    contestant: str
    operator: str
    guarantee: str
    steady_per_cpu_second: Spread | None
    steady_per_second: Spread | None
    whole_per_cpu_second: Spread | None
    start_up_seconds: float
    resident_bytes: int


class Spread(NamedTuple):
    """The figures of several rounds."""

    median: float
    least: float
    most: float


Label = tuple[str, str, str, int | str]
"""Contestant, operator, guarantee and round."""


def figures(label: Label, watched: Watched, outcome: Outcome) -> Figures:
    """The figures of a run, from its first commit on."""
    samples = watched.samples
    last = samples[-1]
    first = next(sample for sample in samples if sample.committed > 0)
    middle = next(sample for sample in samples if sample.committed >= last.committed // 2)
    written = next(sample for sample in samples if sample is last or _is_out(sample, outcome))
    records, steady = (last.committed - begun.committed for begun in (first, middle))
    return Figures(
        *label,
        start_up_seconds=first.seconds,
        measured_records=records,
        steady_per_cpu_second=_per(steady, last.cpu_seconds - middle.cpu_seconds),
        steady_per_second=_per(steady, written.seconds - middle.seconds),
        whole_per_cpu_second=_per(records, last.cpu_seconds - first.cpu_seconds),
        whole_per_second=_per(records, written.seconds - first.seconds),
        resident_bytes=watched.resident_bytes,
        outputs=outcome.count,
        checksum=f"{outcome.checksum:016x}",
    )


def rows(runs: Sequence[Figures]) -> Iterator[Row]:
    """A row for each contestant, operator and guarantee, in the order of their first runs."""
    groups: dict[tuple[str, str, str], list[Figures]] = {}
    for run in runs:
        groups.setdefault((run.operator, run.contestant, run.guarantee), []).append(run)
    for (operator, contestant, guarantee), group in groups.items():
        yield Row(
            contestant,
            operator,
            guarantee,
            _spread([run.steady_per_cpu_second for run in group]),
            _spread([run.steady_per_second for run in group]),
            _spread([run.whole_per_cpu_second for run in group]),
            median(run.start_up_seconds for run in group),
            max(run.resident_bytes for run in group),
        )


def _is_out(sample: Sample, outcome: Outcome) -> bool:
    """Whether the whole output stood in the topic."""
    return all(sample.ends[at] >= offset for at, offset in enumerate(outcome.next_offsets))


def _per(records: int, seconds: float) -> float | None:
    return records / seconds if records > 0 and seconds > 0 else None


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return Spread(median(known), min(known), max(known))
