"""KIP-923's own table: wrong without grace, right with it, through topics and several executors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kafka.fixtures import SharedKafka
from tests.spark.driver import Driver
from tests.spark.proposal import run_proposal

pytestmark = pytest.mark.long("spark", why="four jobs run twice on executors of their own")

WITHIN_S = 900


@pytest.fixture(scope="module")
def found(kafka: SharedKafka, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("proposal")
    driver = Driver(folder / "log", run_proposal, kafka.bootstrap_servers, folder)
    assert driver.wait(WITHIN_S) == 0, driver.log
    return json.loads((folder / "found.json").read_text())


def test_without_grace_later_prices_are_not_met(found: Any) -> None:
    assert found["no grace"] == [["1@4=d+a", "2@1=e+b", "3@2=f+c", "2@2=g+b", "3@3=h+c"], []]


def test_with_grace_each_order_meets_the_price_of_its_time(found: Any) -> None:
    assert found["grace"] == [[], ["2@1=e+b", "2@2=g+x", "3@2=f+c", "3@3=h+y", "1@4=d+a"]]


def test_by_progress_orders_wait_for_all_inputs(found: Any) -> None:
    assert found["progress"] == [["2@1=e+b"], ["2@2=g+x", "3@2=f+c", "3@3=h+y", "1@4=d+a"]]


def test_by_progress_a_reader_may_take_as_few_records_as_it_likes(found: Any) -> None:
    assert found["progress, two records at a time"] == found["progress"]


def test_topics_that_are_not_as_expected_are_refused(found: Any) -> None:
    by_another, with_others, missing = found["refused"]
    assert "is written by the pipeline `prices`, not by `others`" in by_another
    assert "`operators.0.reorder.grace: 30s`, and this job relies on `5s`" in with_others
    assert "the topic `nowhere` is missing" in missing


def test_values_in_avro_are_read_with_and_without_a_registry(found: Any) -> None:
    assert found["avro"] == {
        "plain": [[False, 7], [True, None], [False, None]],
        "framed": [[False, 7], [True, None], [True, None]],
    }
