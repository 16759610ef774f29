"""Spark's image: nobody's root, nothing to compile with, and no network that it needs."""

from __future__ import annotations

import json

import pytest
from testcontainers.core.container import DockerContainer

from headrace.spark_jobs.connectors import CONNECTORS, ICEBERG
from tests.kafka.carriers import SPARK
from tests.kafka.containers import owned

pytestmark = pytest.mark.long("containers", why="it runs Spark's image")

TOO_MUCH = ("cc", "gcc", "g++", "make", "javac", "pip", "pip3.11")
LOOK = r"""
import importlib.metadata, json, os, pathlib, re, shutil, sys
from headrace.spark_jobs.connectors import connectors_for, packages
jars = [jar.name for jar in pathlib.Path(os.environ["SPARK_HOME"], "jars").iterdir()]
names = [re.sub(r"-\d[\w.]*\.jar$", "", name) for name in jars]
folders = [sys.prefix, os.environ["SPARK_HOME"], "/jobs", "/usr/bin", "/shared", os.getcwd()]
print(json.dumps({
    "user": os.getuid(),
    "found": [name for name in sys.argv[1:] if shutil.which(name)],
    "writable": [folder for folder in folders if os.access(folder, os.W_OK)],
    "libraries": [one.name for one in importlib.metadata.distributions()],
    "jars": jars,
    "twice": sorted({name for name in names if names.count(name) > 1}),
    "to fetch": packages(connectors_for(iceberg=True)),
}))
"""


def _run(*words: str) -> str:
    """Return the output of a command in a container without a network."""
    container = owned(DockerContainer(SPARK), network_mode="none").with_command(list(words))
    with container:
        code = container.wait()
        out, errors = container.get_logs()
    assert code == 0, errors.decode()
    return out.decode()


def test_it_is_nobody_and_has_all_that_a_job_needs() -> None:
    seen = json.loads(_run("python", "-c", LOOK, *TOO_MUCH))
    assert seen["user"] == 10_001
    assert seen["found"] == []
    assert seen["writable"] == ["/shared", "/var/lib/headrace/work"]
    assert {"headrace", "pyspark", "confluent-kafka"} <= set(seen["libraries"])
    assert not {"pip", "setuptools", "pytest", "aiokafka"} & set(seen["libraries"])
    for connector in (*CONNECTORS, ICEBERG):
        _, name, version = connector.split(":")
        assert f"{name}-{version}.jar" in seen["jars"]
    # A library in two versions is a lottery.
    assert seen["twice"] == []
    assert seen["to fetch"] == ""


def test_it_hands_a_job_to_a_cluster_with_nothing_to_fetch() -> None:
    command = _run(
        "headrace", "spark", "/jobs/priced.yaml", "--master", "spark://spark-master:7077", "--print"
    )
    assert command.startswith("spark-submit --master spark://spark-master:7077 --conf spark.driver")
    assert "--packages" not in command
