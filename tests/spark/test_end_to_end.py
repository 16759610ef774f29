"""From raw topics through sidecars and Spark to Kafka and Delta, on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.fixtures import SharedKafka
from tests.runtime.conftest import make_pipeline
from tests.runtime.sidecar import MakePipeline
from tests.spark.kill import CHUNK, make_world, problems_of, run

__all__ = ["make_pipeline"]


KILLED = pytest.mark.long("drivers", why="sidecars and drivers are killed at random")


@pytest.mark.parametrize("kills", [0, pytest.param(3, marks=KILLED)])
def test_every_order_meets_its_price_once(
    kafka: SharedKafka, make_pipeline: MakePipeline, tmp_path: Path, kills: int
) -> None:
    world = make_world(make_pipeline, kafka.bootstrap_servers, tmp_path, seed=kills)
    said: list[str] = []
    assert run(world, kills, said.append) == [], "\n".join(said)
    assert world.shop.late
    assert world.shop.expected().total() > CHUNK
    # A judge that finds everything right must have been able to find something wrong.
    assert problems_of(world.shop.expected(), {"kafka": type(world.shop.expected())()})
