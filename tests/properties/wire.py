"""How an oracle's windowed results look on the wire: `contracts/window.py`, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.contracts.record import Record
from headrace.contracts.window import window_header, windowed_key
from tests.oracles.expected import Expected, Output


def on_the_wire(expected: Expected) -> Expected:
    """The same, with every window in its result's key and headers."""
    return replace(expected, outputs=[_written(output) for output in expected.outputs])


def records_of(expected: Expected, records: Sequence[Record]) -> list[Record]:
    """Return the results as records for the next operator; a new one has its cause's origin."""
    if expected.left:
        return expected.left
    return [
        records[output.cause]._replace(
            key=output.key,
            value=output.value,
            timestamp_ms=output.timestamp_ms,
            headers=output.headers,
        )
        for output in on_the_wire(expected).outputs
    ]


def _written(output: Output) -> Output:
    if output.window is None or output.key is None:
        return output
    return output._replace(
        key=windowed_key(output.key, output.window),
        headers=(*output.headers, window_header(output.window)),
        window=None,
    )
