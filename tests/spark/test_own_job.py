"""A job of one's own: the page's, as its reader runs it, and handed to executors elsewhere."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from headrace.contracts.record import Record
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.pages import run_there, write_files
from tests.runtime.sidecar import record
from tests.spark.proposal import MASTER

HERE = ["headrace", "spark", "stock.yaml", "--once"]


ALONE = pytest.mark.long("spark", why="the job of a page takes half a minute")


@pytest.fixture(
    params=[
        pytest.param("here", marks=ALONE),
        pytest.param("elsewhere", marks=ALONE),
        pytest.param("in a package", marks=ALONE),
    ]
)
def command(request: pytest.FixtureRequest) -> list[str]:
    """The command that runs the job; on two executors, which must be sent its module."""
    return [*HERE, "--master", MASTER, "--print"] if request.param == "elsewhere" else HERE


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the job's files; once its module lies in a package that is called as ours."""
    write_files("spark_jobs/OWN_JOBS.md", tmp_path)
    if request.node.callspec.params["command"] == "in a package":
        package = tmp_path / "services"
        package.mkdir()
        (package / "__init__.py").touch()
        (tmp_path / "stock.py").rename(package / "stock.py")
        file = tmp_path / "stock.yaml"
        text = file.read_text().replace("job: stock", "job: services.stock")
        file.write_text(re.sub(r"spark: .*\n", "", text))
    return tmp_path


def test_the_job_of_the_page_adds_up_what_warehouses_have(
    kafka: SharedKafka, folder: Path, command: list[str]
) -> None:
    name = fresh_name("stock")
    file = folder / "stock.yaml"
    text = file.read_text().replace("127.0.0.1:9092", kafka.bootstrap_servers)
    for mine in ("name: stock", "stock.cleaned", "stock.total"):
        text = text.replace(mine, mine.replace("stock", name))
    file.write_text(f"{text}tasks: 2\nshuffle-partitions: 1\n")
    kafka.clients.make_topic(f"{name}.cleaned", 2, {"retention.ms": "-1"})
    kafka.clients.produce(
        f"{name}.cleaned",
        [
            told("north/bolt", 10, 1_000),
            told("south/bolt", 5, 1_000),
            told("south/bolt", 7, 3_000),
            # It comes late, and south has said something newer since.
            told("south/bolt", 100, 2_000),
            told("south/nut", 1, 1_000),
            record(b"south/nut", None, 2_000),
            record(b"south/screw", b"many", 2_000),
        ],
    )
    printed = run_there(command, folder)
    if "--print" in command:
        run_there(shlex.split(printed), folder)
    totals = {one.key: one.value for one in kafka.clients.consume_all(f"{name}.total")}
    assert totals == {b"bolt": b'{"pieces":17}', b"nut": b'{"pieces":0}'}
    dead = kafka.clients.consume_all(f"{name}.cleaned.dead")
    assert [(one.key, one.value) for one in dead] == [(b"south/screw", b"many")]


def told(where_and_what: str, pieces: int, timestamp_ms: int) -> Record:
    product = where_and_what.partition("/")[2]
    value = json.dumps({"product": product, "pieces": pieces}).encode()
    return record(where_and_what.encode(), value, timestamp_ms)
