"""The compose file's Spark cluster: raw topics in, joined rows out, one worker killed."""

from __future__ import annotations

import shlex
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from testcontainers.core.container import DockerContainer

from headrace.contracts.record import Record
from tests.kafka.compose import WITHIN_S, Composed, composing, wait_until, wait_until_healthy
from tests.spark.driver import QUICK_JAVA
from tests.spark.kill import problems_of
from tests.spark.orders import PARTITIONS, Shop, rows_in_table, rows_in_topic
from tests.spark.tables import live_rows

pytestmark = pytest.mark.long("containers", why="it runs a Spark cluster in containers")

CHUNK = 300
SIDECARS = ["orders", "prices"]
CLUSTER = ["spark-master", "spark-worker", "priced"]
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spark.md"
PRICED = "orders.priced"
QUICKLY = {"JDK_JAVA_OPTIONS": QUICK_JAVA}
"""Code that is compiled once; executors have it from their worker."""


@pytest.fixture
def composed(image_of_kafka: str, tmp_path: Path) -> Iterator[Composed]:
    """The broker, the master, and both sidecars; workers and job are the test's to start."""
    volumes = [f"{_patient_pipelines(tmp_path / 'pipelines')}:/pipelines"]
    with composing(image_of_kafka) as composed:
        for topic in ("orders.raw", "prices.raw"):
            composed.clients.make_topic(topic, PARTITIONS)
        sidecars = [one for name in SIDECARS for one in composed.start(name, volumes=volumes)]
        composed.start("spark-master")
        for sidecar in sidecars:
            wait_until_healthy(sidecar)
        yield composed


def _patient_pipelines(folder: Path) -> Path:
    """The image's pipelines; orders wait for prices for as long as the next chunk takes."""
    folder.mkdir(mode=0o755)
    for name in SIDECARS:
        text = (ROOT / "docker" / "pipelines" / f"{name}.yaml").read_text("utf-8")
        patient = text.replace("max-future: 1h}", "max-future: 1h, idle: never}")
        assert patient != text
        (folder / f"{name}.yaml").write_text(patient, "utf-8")
    return folder


def _send(composed: Composed, chunk: tuple[list[Record], list[Record]]) -> None:
    orders, prices = chunk
    composed.clients.produce("orders.raw", orders)
    composed.clients.produce("prices.raw", prices)


def _wait_for_rows(composed: Composed, count: int, driver: DockerContainer) -> None:
    clients = composed.clients

    def are_there() -> bool:
        return PRICED in clients.topics() and len(clients.consume_all(PRICED)) >= count

    wait_until(are_there, f"{count} priced orders", [driver])


def test_a_job_on_the_cluster_outlives_a_worker(composed: Composed, tmp_path: Path) -> None:
    assert composed.names("spark") == SIDECARS + CLUSTER, "a service that no test starts"
    shop = Shop(seed=1)
    _send(composed, shop.chunk(CHUNK))
    for topic in ("orders.cleaned", "prices.cleaned"):
        composed.clients.consume(topic, 1, within_s=WITHIN_S)
    killed, _ = composed.start("spark-worker", environment=QUICKLY)
    (driver,) = composed.start("priced", environment=QUICKLY)
    _wait_for_rows(composed, 1, driver)
    # The join goes on while the worker dies.
    _send(composed, shop.chunk(CHUNK))
    killed.get_wrapped_container().kill("SIGKILL")
    _send(composed, shop.chunk(CHUNK))
    _send(composed, shop.flush())
    expected = shop.expected()
    _wait_for_rows(composed, expected.total(), driver)
    written = {"kafka": rows_in_topic(composed.clients.consume_all(PRICED))}
    driver.get_wrapped_container().stop()
    written["delta"] = rows_in_table(live_rows(_table_of_a_second_job(composed, tmp_path)))
    assert problems_of(expected, written) == []
    assert shop.late
    # A judge that finds everything right must have been able to find something wrong.
    assert problems_of(expected, {"kafka": Counter()})


def _table_of_a_second_job(composed: Composed, folder: Path) -> Path:
    """The files of another driver and another executor, where all of them see it."""
    command = _command_of_the_page()
    (driver,) = composed.start("priced", command=command, environment=QUICKLY)
    container = driver.get_wrapped_container()
    assert container.wait(timeout=WITHIN_S)["StatusCode"] == 0, container.logs(tail=40).decode()
    packed, _ = container.get_archive("/shared/tables/priced")
    # Not `tarfile`: what it asks for differs between Python 3.11.2 and 3.13.
    subprocess.run(["tar", "-x", "-C", folder], input=b"".join(packed), check=True)  # noqa: S607
    return folder / "priced"


def _command_of_the_page() -> list[str]:
    """The command of the page for another container of the service `priced`."""
    lines = PAGE.read_text("utf-8").replace("\\\n", "").splitlines()
    (line,) = (line for line in lines if line.startswith("docker compose") and " run " in line)
    return shlex.split(line.partition(" priced ")[2])
