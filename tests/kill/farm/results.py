"""The farm's findings so far: a line a run, and a table over all of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kill.farm.carry import Outcome

_COUNTED = ("worker_kills", "broker_strikes", "requests", "records")
_WRONG = ("lost", "doubled", "dirty")


def line_of(outcome: Outcome, evidence: Path | None, commit: str) -> dict[str, Any]:
    """A run in a line."""
    drawn, difference = outcome.drawn, outcome.difference
    return {
        "commit": commit,
        "seed": drawn.seed,
        "shape": drawn.shape,
        "drawn": str(drawn),
        **{name: getattr(outcome, name) for name in _COUNTED},
        **{name: getattr(difference, name) for name in _WRONG},
        "repeated": difference.repeated,
        "strikes": len(drawn.strikes),
        "struck": outcome.struck,
        "left_out": outcome.left_out,
        "verdict": outcome.verdict,
        "seconds": round(outcome.seconds),
        "problems": [problem.splitlines()[0] for problem in outcome.problems[:3]],
        "stuck": outcome.stuck,
        "evidence": None if evidence is None else evidence.name,
    }


def add(results: Path, line: dict[str, Any]) -> None:
    """Write a line behind the others."""
    with results.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read(results: Path) -> list[dict[str, Any]]:
    """All lines so far."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text().splitlines()]


def of_commit(lines: list[dict[str, Any]], commit: str) -> list[dict[str, Any]]:
    """The runs of one commit."""
    return [line for line in lines if line.get("commit") == commit]


def kills_of(lines: list[dict[str, Any]]) -> int:
    """How many workers and brokers these runs struck down."""
    return sum(line["worker_kills"] + line["broker_strikes"] for line in lines)


def table(lines: list[dict[str, Any]]) -> Iterator[str]:
    """The strikes and their results, pipeline by pipeline."""
    yield (
        "| pipeline | runs | kills of workers | strikes at brokers | requests struck | records"
        " | lost | doubled | dirty | wrong | stuck |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    by_shape: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        by_shape[line["shape"]].append(line)
    for shape, some in sorted(by_shape.items()):
        yield _row(shape, some)
    yield _row("all", lines)
    failed = [line for line in lines if line["verdict"] != "right"]
    if failed:
        yield ""
        yield "| seed | what was drawn | verdict | what |"
        yield "|---|---|---|---|"
    for line in failed:
        what = "; ".join(line["stuck"].splitlines()[:1] if line["stuck"] else line["problems"])
        yield f"| {line['seed']} | {line['drawn']} | {line['verdict']} | {what} |"


def _row(name: str, lines: list[dict[str, Any]]) -> str:
    counted = [sum(line[column] for line in lines) for column in (*_COUNTED, *_WRONG)]
    verdicts = [sum(line["verdict"] == verdict for line in lines) for verdict in ("wrong", "stuck")]
    numbers = " | ".join(f"{number:,}" for number in (len(lines), *counted, *verdicts))
    return f"| {name} | {numbers} |"
