"""The options of a topology that a checkpoint remembers, since its state was made with them."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.spark_jobs.operators.topology import (
    LookUp,
    StreamJoin,
    Topology,
    WindowStep,
    steps_of,
)
from headrace.spark_jobs.versioned.spread import LEFT_COLUMNS, MEETS_AS, MEETS_BY, RIGHT_COLUMNS
from headrace.spark_jobs.versioned.tables import Plain, Versioned


def options_of(topology: Topology) -> dict[str, int]:
    """Return the options of a topology that a checkpoint remembers, as numbers by name."""
    options: dict[str, int] = {}
    for step in steps_of(topology):
        options[f"step:{step.name}:{type(step).__name__}"] = 1
        options |= {f"option:{step.name}:{name}": number for name, number in _options_of(step)}
    return options


def _options_of(step: Topology) -> Iterator[tuple[str, int]]:
    if isinstance(storage := getattr(step, "storage", None), Versioned):
        yield "retention_ms", storage.retention_ms
    elif isinstance(storage, Plain):
        yield "plain", 1
    if (join := getattr(step, "join", None)) is not None:
        yield join, 1
    if isinstance(step, WindowStep):
        yield "size_ms", step.size_ms
        # Of groups with other keys than their records, nobody knows into which task they go.
        yield from getattr(step.regroup, "options", {}).items()
    if isinstance(step, StreamJoin):
        yield "within_ms", step.within_ms
        if step.grace_ms:
            yield "grace_ms", step.grace_ms
        if step.columns is not None:
            yield from zip((LEFT_COLUMNS, RIGHT_COLUMNS), step.columns, strict=True)
    if isinstance(step, LookUp):
        yield from _of_a_look_up(step)
    if isinstance(step, LookUp | StreamJoin) and step.meets_as is not None:
        yield MEETS_AS, step.meets_as


def _of_a_look_up(step: LookUp) -> Iterator[tuple[str, int]]:
    yield step.release, 1
    if step.corrects:
        yield "corrects", 1
    if step.grace_ms is not None:
        yield "grace_ms", step.grace_ms
    if step.meets_by is not None:
        yield MEETS_BY, step.meets_by
