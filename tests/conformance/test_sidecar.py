"""A sample of every area through a real broker and the sidecar; the whole of it takes minutes.

`python -m tests.conformance --through sidecar` runs all vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import cycle
from pathlib import Path

import pytest

from tests.conformance.sidecar.rules import why_not
from tests.conformance.sidecar.runner import run_vectors
from tests.conformance.sidecar.trial import Manner
from tests.conformance.vectors import Vector, load
from tests.kafka.fixtures import SharedKafka

Spoil = Callable[[Vector], None]
_INPUTS_MAX = 300


def _sample() -> list[Vector]:
    """For each kind of vector, and for those that fail, the short one with the most to say."""
    kinds: dict[object, Vector] = {}
    for vector in load():
        if why_not(vector) is None and len(vector["input"]) <= _INPUTS_MAX:
            other = kinds.setdefault(_kind(vector), vector)
            if len(vector["output"]) > len(other["output"]):
                kinds[_kind(vector)] = vector
    return list(kinds.values())


def _kind(vector: Vector) -> object:
    config = vector["config"]
    window = config.get("window") or {}
    return "error" in vector or (vector["operator"], config.get("by"), window.get("type"))


def _without_the_last(vector: Vector) -> None:
    del vector["output"][-1]


def _one_millisecond_later(vector: Vector) -> None:
    vector["output"][0]["ts"] += 1


def _with_another_value(vector: Vector) -> None:
    value = vector["output"][-1]["value"]
    vector["output"][-1]["value"] = value + 1 if isinstance(value, int) else f"{value}!"


def _with_a_header(vector: Vector) -> None:
    vector["output"][0]["headers"] = {"never": "sent"}


def _out_of_order(vector: Vector) -> None:
    """The first two neighbours with different keys, the other way round."""
    outputs = vector["output"]
    pairs = zip(range(len(outputs)), outputs, outputs[1:], strict=False)
    place = next(place for place, one, other in pairs if one["key"] != other["key"])
    outputs[place : place + 2] = outputs[place + 1], outputs[place]


def _that_fails_later(vector: Vector) -> None:
    vector["error"]["after_input"] += 1


_SPOILS: tuple[Spoil, ...] = (
    _without_the_last,
    _one_millisecond_later,
    _with_another_value,
    _with_a_header,
)


def _spoiled(vectors: Iterable[Vector]) -> list[Vector]:
    """Vectors that no sidecar can agree with."""
    spoiled = []
    for vector, spoil in zip(vectors, cycle(_SPOILS), strict=False):
        other = deepcopy(vector)
        chosen = _that_fails_later if "error" in vector else spoil
        (_out_of_order if vector["operator"] == "stream_table_join" else chosen)(other)
        spoiled.append(other)
    return spoiled


def test_every_kind_of_vector_agrees_and_would_be_seen_to_disagree(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    sample = _sample()
    assert {"dedup", "stream_table_join", "suppress", "windowed_aggregate"} == {
        vector["area"] for vector in sample
    }
    vectors = [*sample, *_spoiled(sample)]
    found = run_vectors(vectors, kafka.bootstrap_servers, tmp_path, Manner())
    agreeing, disagreeing = found[: len(sample)], found[len(sample) :]
    assert agreeing == [[] for _ in sample]
    assert [_name(vector) for vector, why in zip(sample, disagreeing, strict=True) if not why] == []


@pytest.mark.long("vectors", why="stops and commits are drawn without a broker")
def test_outputs_do_not_depend_on_stops_and_commits(kafka: SharedKafka, tmp_path: Path) -> None:
    of_each_area = {vector["area"]: vector for vector in _sample() if "error" not in vector}
    vectors = list(of_each_area.values())
    manner = Manner(commit_records=7, restarts=True)
    assert run_vectors(vectors, kafka.bootstrap_servers, tmp_path, manner) == [[] for _ in vectors]


@pytest.mark.parametrize("area", ["suppress", "windowed_aggregate", "dedup"])
def test_vectors_that_are_not_for_the_sidecar_have_a_reason(area: str) -> None:
    assert [_name(vector) for vector in load(area=area) if why_not(vector) is not None] == []


def _name(vector: Vector) -> str:
    return f"{vector['area']}/{vector['name']}"
