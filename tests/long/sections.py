"""The sections of `make test-long`, the longest first.

A section runs the tests that are marked with its name, `@pytest.mark.long("kill", why="...")`, or a
command of its own.
"""

from __future__ import annotations

import sys
from typing import NamedTuple


class Section(NamedTuple):
    """One of them."""

    tries: str
    minutes_max: int
    """It is ended behind that, on a machine of any speed."""
    command: tuple[str, ...] = ()
    """The command that runs it, if it is no run of marked tests."""


SECTIONS = {
    "bare": Section("README's commands on Debians that have nothing", 120, ("make", "test-bare")),
    "pythons": Section(
        "lint, types and what needs no Spark, on every Python here", 90, ("make", "test-pythons")
    ),
    "whole": Section(
        "both of README's commands in an empty folder, on the oldest and newest Python here",
        90,
        (sys.executable, "-m", "tests.machines", "whole"),
    ),
    "farm": Section(
        "200 strikes at sidecars, brokers, network and state, drawn anew",
        90,
        ("make", "kill-farm", "KILLS=200"),
    ),
    "thorough": Section("property tests with 2,000 examples each", 120, ("make", "thorough")),
    "libraries": Section(
        "the wheel with the newest and the lowest libraries", 60, ("make", "test-libraries")
    ),
    "brokers": Section(
        "what speaks to a broker, on the oldest Kafka", 60, ("make", "test-brokers")
    ),
    "sparks": Section(
        "what starts Spark, on the newest version of Spark that we run on",
        90,
        (sys.executable, "-m", "tests.machines", "sparks"),
    ),
    "time": Section("backlogs, silence and clocks across partitions and instances", 45),
    "spark": Section("Spark jobs whole: options, failures, progress, tables", 60),
    "containers": Section(
        "images, the compose file, Spark's cluster in containers",
        45,
        ("docker/with-docker.sh", "make", "test-containers"),
    ),
    "nonsense": Section(
        "a million nonsense records through every operator",
        60,
        (sys.executable, "-m", "tests.nonsense", "records", "--count", "1000000", "--seed"),
    ),
    "drivers": Section("Spark drivers killed at each step of a micro-batch", 30),
    "kill": Section("sidecars killed, stopped and robbed of their disks, by chance", 30),
    "outages": Section("brokers and coordinators that die, stop or sleep", 30),
    "clusters": Section("hundreds of partitions, quotas, logins, IPv6", 30),
    "vectors": Section("Kafka Streams' results through a sidecar and through Spark", 30),
    "site": Section("the site of the pages, built strictly", 20, ("make", "docs")),
    "users": Section("the demo, the tutorial and the site, as a user sees them", 30),
    "random": Section(
        "nonsense of a fresh seed: files, records, streams through a sidecar and Spark",
        30,
        (
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "auto",
            "tests/nonsense",
            "tests/spark/test_nonsense.py",
        ),
    ),
}
SEEDED = {"nonsense"}
"""Their command takes the seed as its last word."""
