"""A sample of every kind of vector through streaming queries; the whole of it takes minutes.

`python -m tests.conformance --through spark` runs all vectors.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conformance.spark.runner import AREAS, run_vectors
from tests.conformance.vectors import Vector, load

pytestmark = pytest.mark.long("vectors", why="it takes most of a minute")

_INPUTS_MAX = 300
_SOCKETS = "ignore:unclosed <socket:ResourceWarning"


def _sample() -> list[Vector]:
    """For each kind of vector, and for those that fail, the short one with the most to say."""
    kinds: dict[object, Vector] = {}
    for vector in load():
        if vector["area"] in AREAS and len(vector["input"]) <= _INPUTS_MAX:
            other = kinds.setdefault(_kind(vector), vector)
            if len(vector["output"]) > len(other["output"]):
                kinds[_kind(vector)] = vector
    return list(kinds.values())


def _kind(vector: Vector) -> object:
    config = vector["config"]
    sides = [(config.get(side) or {}).get("versioned") for side in ("table", "left", "right")]
    graced = config.get("grace_ms") is not None
    described = [step for name in config if name.endswith("ops") for step in config[name]]
    shape = (vector["operator"], config.get("join"), config.get("agg"), graced, *sides)
    return "error" in vector or (*shape, any(step["op"] == "suppress" for step in described))


def _spoiled(vector: Vector) -> Vector:
    """A vector that nothing can agree with."""
    other = deepcopy(vector)
    if "error" in other:
        del other["error"]
    elif "result" in other["output"][-1]:
        other["output"][-1]["result"] = {"value": "never", "valid_from": 0}
    else:
        other["output"][-1]["ts"] += 1
    return other


@pytest.mark.filterwarnings(_SOCKETS)
def test_every_kind_of_vector_agrees_and_would_be_seen_to_disagree(
    spark: SparkSession, tmp_path: Path
) -> None:
    sample = _sample()
    operators = {vector["operator"] for vector in sample}
    assert {"stream_table_join", "table_table_join", "fk_join", "table_aggregate"} <= operators
    vectors = [*sample, *map(_spoiled, sample)]
    found = run_vectors(spark, vectors, tmp_path, cuts=(5,))
    names = [vector["name"] for vector in sample]
    agreeing, disagreeing = found[: len(sample)], found[len(sample) :]
    assert {name: why for name, why in zip(names, agreeing, strict=True) if why} == {}
    assert [name for name, why in zip(names, disagreeing, strict=True) if not why] == []
