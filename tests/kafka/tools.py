"""Kafka's own command line tools, for what their users must see."""

from __future__ import annotations

import subprocess
from pathlib import Path

from services.broker.jars import kafka_jars
from services.broker.java import find_java

POM = Path(__file__).with_name("tools.xml")
_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_WITHIN_MS = "60000"


def describe_group(servers: str, group: str, *more: str) -> list[dict[str, str]]:
    """What `kafka-consumer-groups --describe` prints of a group: a line each, by column."""
    jars = (kafka_jars(pom=POM), kafka_jars())
    command = [find_java().path, "-cp", ":".join(f"{folder}/*" for folder in jars), _GROUPS]
    command += ["--bootstrap-server", servers, "--describe", "--group", group, *more]
    command += ["--timeout", _WITHIN_MS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    head, *lines = (line.split() for line in done.stdout.splitlines() if line.strip())
    return [dict(zip(head, line, strict=True)) for line in lines]
