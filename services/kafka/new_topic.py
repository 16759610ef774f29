"""A topic to be made, by us or by an administrator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from shlex import join
from typing import NamedTuple

BROKERS_DEFAULT = -1
"""A number of replicas that the brokers choose."""


class NewTopic(NamedTuple):
    """A topic to be made."""

    name: str
    partitions: int
    settings: Mapping[str, str]


def to_be_made(topics: Iterable[NewTopic], replication: int, servers: str, user: str) -> str:
    """Return the sentence and the commands for a user who may not make topics."""
    sentence = (
        f"the brokers do not let {user} make the topics that are missing; grant Create on them,"
        " or have an administrator make them:"
    )
    return "\n".join([sentence, *(_command(one, replication, servers) for one in topics)])


def _command(topic: NewTopic, replication: int, servers: str) -> str:
    words = ["kafka-topics.sh", "--bootstrap-server", servers, "--create", "--topic", topic.name]
    words += ["--partitions", str(topic.partitions)]
    if replication != BROKERS_DEFAULT:
        words += ["--replication-factor", str(replication)]
    for name, value in topic.settings.items():
        words += ["--config", f"{name}={value}"]
    return join(words)
