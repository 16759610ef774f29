"""A job on a real YARN, its driver on this machine and in the cluster: each row leaves once."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.fixtures import SharedKafka
from tests.pages import installed
from tests.spark.test_query_job import Shop, order, price
from tests.spark.yarn import running_yarn

pytestmark = pytest.mark.long("spark", why="it starts YARN, and a job on it twice")

JOB = """\
job: orders-prices
name: {name}
servers: {servers}
checkpoint: file://{folder}/checkpoint
inputs:
  prices: {{topic: {name}-prices.cleaned, pipeline: {name}-prices}}
  orders: {{topic: {name}-orders.cleaned, pipeline: {name}-orders}}
retention: 1h
tasks: 2
shuffle-partitions: 2
sink: {{kafka: {{topic: {name}-orders.priced}}}}
spark:
  spark.driver.memory: 512m
  spark.executor.memory: 512m
  spark.executor.instances: "1"
  spark.yarn.submit.waitAppCompletion: "true"
"""


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_yarn(tmp_path_factory.mktemp("yarn")) as conf:
        yield conf


def run_on(yarn: Path, folder: Path, *more: str) -> str:
    """Run the job over what is there; return what the terminal shows."""
    environment = {
        **installed(),
        "HADOOP_CONF_DIR": str(yarn),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = ["headrace", "spark", "job.yaml", "--master", "yarn", "--once", *more]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_a_job_goes_on_where_it_was_wherever_its_driver_runs(
    yarn: Path, kafka: SharedKafka, tmp_path: Path
) -> None:
    shop = Shop(kafka.clients, tmp_path)
    text = JOB.format(name=shop.name, servers=kafka.bootstrap_servers, folder=tmp_path)
    (tmp_path / "job.yaml").write_text(text)
    shop.send("prices", price(b"nut", 5, 1_000), price(b"x", 1, 9_000))
    shop.send("orders", order(b"nut", "o1", 2, 2_000), order(b"nut", "o2", 2, 20_000))
    run_on(yarn, tmp_path)
    assert [row["total_cents"] for _, _, row in shop.priced()] == [10]
    shop.send("prices", price(b"nut", 9, 15_000), price(b"x", 1, 40_000))
    shop.send("orders", order(b"nut", "o3", 1, 21_000), order(b"x", "o4", 1, 50_000))
    run_on(yarn, tmp_path, "--deploy-mode", "cluster")
    assert [row["total_cents"] for _, _, row in shop.priced()] == [10, 18, 9]
