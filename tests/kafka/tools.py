"""Kafka's own command line tools, for what their users must see."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.services.broker.embedded import LIGHT_JAVA
from headrace.services.broker.jars import kafka_jars, kafka_version
from headrace.services.broker.java import find_java

POM = Path(__file__).with_name("tools.xml")
_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_CONFIGS = "kafka.admin.ConfigCommand"
_ACLS = {"3": "kafka.admin.AclCommand", "4": "org.apache.kafka.tools.AclCommand"}
"""By Kafka's major version."""
_WITHIN_MS = "60000"


def run_acls(line: str) -> str:
    """Do what a line for `kafka-acls.sh` says."""
    tool, *words = shlex.split(line)
    assert tool == "kafka-acls.sh"
    return _run(_ACLS[kafka_version().partition(".")[0]], words)


def set_quotas(servers: str, quotas: Mapping[str, int]) -> None:
    """Let every client do only so much, as `kafka-configs` says it."""
    words = ["--bootstrap-server", servers, "--alter", "--entity-type", "clients"]
    words += ["--entity-default", "--add-config"]
    _run(_CONFIGS, [*words, ",".join(f"{name}={value}" for name, value in quotas.items())])


def describe_group(servers: str, group: str, *more: str) -> list[dict[str, str]]:
    """Return the lines that `kafka-consumer-groups --describe` prints of a group, by column."""
    words = ["--bootstrap-server", servers, "--describe", "--group", group, *more]
    words += ["--timeout", _WITHIN_MS]
    said = _run(_GROUPS, words)
    head, *lines = (line.split() for line in said.splitlines() if line.strip())
    return [dict(zip(head, line, strict=True)) for line in lines]


def _run(main: str, words: Sequence[str]) -> str:
    jars = (kafka_jars(pom=POM), kafka_jars())
    classes = ":".join(f"{folder}/*" for folder in jars)
    command = [find_java().path, *LIGHT_JAVA, "-cp", classes, main, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
