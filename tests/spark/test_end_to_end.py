"""From raw topics through sidecars and `headrace spark` to Kafka and Delta, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.kafka.fixtures import SharedKafka
from tests.runtime.sidecar import making_pipelines
from tests.spark.commands import Ended, ended, run_commands
from tests.spark.driver import Driver
from tests.spark.kill import (
    CHUNK,
    CLEANED_WITHIN_S,
    World,
    begin,
    end,
    make_world,
    problems_of,
    run,
)
from tests.spark.test_failures import StockJob
from tests.spark.test_query_job import Shop, assert_first_is_priced, send_first


class Ran(NamedTuple):
    """Commands that have run, and what they read and wrote."""

    world: World
    shop: Shop
    stock: Ended
    of_readme: Ended
    of_world: list[Ended]


@pytest.fixture(scope="module")
def ran(kafka: SharedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """Run a job without its topic, README's, and those that join what two sidecars clean."""
    folder = tmp_path_factory.mktemp("jobs")
    servers = kafka.bootstrap_servers
    StockJob(folder, servers=servers)
    shop = Shop(kafka.clients, folder)
    send_first(shop)
    with making_pipelines(lambda: servers, folder) as make_pipeline:
        world = make_world(make_pipeline, servers, folder, seed=0)
        begin(world)
        end(world)
        jobs = ["stock.yaml", "priced.py", *map(str, world.write_jobs())]
        commands = [["spark", job, "--once", "--log", "spark.log"] for job in jobs]
        told = {"HEADRACE_BOOTSTRAP_SERVERS": servers}
        driver = Driver(folder / "driver.log", run_commands, folder, commands, told)
        assert driver.wait(3 * CLEANED_WITHIN_S) == 0, driver.log
        stock, of_readme, *of_world = ended(driver.log)
        yield Ran(world, shop, stock, of_readme, of_world)


def test_a_topic_that_is_not_there(ran: Ran) -> None:
    sentence = "the topic `stock.cleaned` is missing; start its sidecar, or name another topic"
    assert (ran.stock.exit_code, ran.stock.said[-1]) == (2, sentence)


def test_the_job_of_the_readme_prices_each_order_at_its_own_time(ran: Ran) -> None:
    assert ran.of_readme.exit_code == 0, ran.of_readme.said
    assert_first_is_priced(ran.shop)


def test_every_order_meets_its_price_once(ran: Ran) -> None:
    assert [each.exit_code for each in ran.of_world] == [0, 0, 0], ran.of_world
    assert problems_of(ran.world.shop.expected(), ran.world.written()) == []
    assert_judged_something(ran.world)


@pytest.mark.long("drivers", why="sidecars and drivers are killed at random")
def test_every_order_meets_its_price_once_behind_kills(
    kafka: SharedKafka, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, servers = tmp_path_factory.mktemp("kills"), kafka.bootstrap_servers
    said: list[str] = []
    with making_pipelines(lambda: servers, folder) as make_pipeline:
        world = make_world(make_pipeline, servers, folder, seed=3)
        assert run(world, 3, said.append) == [], "\n".join(said)
    assert_judged_something(world)


def assert_judged_something(world: World) -> None:
    """A judge that finds everything right must have been able to find something wrong."""
    expected = world.shop.expected()
    assert world.shop.late
    assert expected.total() > CHUNK
    assert problems_of(expected, {"kafka": type(expected)()})
