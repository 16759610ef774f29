"""The properties of our brokers, whichever way a broker starts.

One set of properties; `as_file` writes it for a Java process, `as_environment` for the official
image, which reads the same names out of its environment.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import NamedTuple

CLUSTER_ID = base64.urlsafe_b64encode(b"headrace-cluster").decode().rstrip("=")
PLAINTEXT = "PLAINTEXT"
_SMALL = {
    # A machine of one person, or a test: few partitions to load, little memory, no waiting for
    # group members that will not come.
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    # Each partition maps two indexes of this size. The first write to one reads up to 8 MiB of it
    # ahead, all zeros, where the disk is told to. Segments end at 350 MiB with this, not at 1 GiB.
    "log.index.size.max.bytes": str(1 << 20),
    "num.network.threads": "2",
    "num.io.threads": "4",
    # A topic that is misspelt shall show, not appear.
    "auto.create.topics.enable": "false",
    # A broker that was killed may register again only when its old session is over.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # A transaction whose producer was killed blocks its readers until it is aborted.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
_REPLICAS_MAX = 3
_INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
_WITH_BOUND_IN_SYNC = _INTERNAL_TOPICS[1:]


class Endpoint(NamedTuple):
    """Where a listener is bound, and the address under which others find it."""

    bound: str
    address: str


class Listener(NamedTuple):
    """One more way in for clients."""

    protocol: str
    clients: Endpoint


class Node(NamedTuple):
    """One broker, which is a controller as well."""

    number: int
    clients: Endpoint
    brokers: Endpoint
    controllers: Endpoint


def properties(
    node: Node, nodes: Sequence[Node], folder: str, clients_protocol: str = PLAINTEXT
) -> dict[str, str]:
    """Return the properties of one node; only its listener for clients may be a secured one."""
    return {
        **_SMALL,
        **_replication(len(nodes)),
        "process.roles": "broker,controller",
        "node.id": str(node.number),
        "controller.quorum.voters": ",".join(
            f"{one.number}@{one.controllers.address}" for one in nodes
        ),
        "controller.listener.names": "CONTROLLERS",
        "inter.broker.listener.name": "BROKERS",
        "listener.security.protocol.map": (
            f"CLIENTS:{clients_protocol},BROKERS:PLAINTEXT,CONTROLLERS:PLAINTEXT"
        ),
        "listeners": (
            f"CLIENTS://{node.clients.bound},BROKERS://{node.brokers.bound},"
            f"CONTROLLERS://{node.controllers.bound}"
        ),
        "advertised.listeners": f"CLIENTS://{node.clients.address},BROKERS://{node.brokers.address}",
        "log.dirs": folder,
    }


def and_listeners(told: Mapping[str, str], more: Mapping[str, Listener]) -> dict[str, str]:
    """Return the properties of a broker with more listeners, by name."""
    each = more.items()
    protocols = [f"{name}:{listener.protocol}" for name, listener in each]
    bound = [f"{name}://{listener.clients.bound}" for name, listener in each]
    advertised = [f"{name}://{listener.clients.address}" for name, listener in each]
    added = {
        "listener.security.protocol.map": protocols,
        "listeners": bound,
        "advertised.listeners": advertised,
    }
    return {**told, **{key: ",".join([told[key], *words]) for key, words in added.items()}}


def _replication(brokers: int) -> dict[str, str]:
    replicas = str(min(brokers, _REPLICAS_MAX))
    in_sync = str(2 if brokers >= _REPLICAS_MAX else 1)
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        **{f"{topic}.replication.factor": replicas for topic in _INTERNAL_TOPICS},
        **{f"{topic}.min.isr": in_sync for topic in _WITH_BOUND_IN_SYNC},
    }


def as_file(told: Mapping[str, str]) -> str:
    """The text of a `server.properties`."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in told.items())


def _escaped(value: str) -> str:
    # A backslash escapes what follows it, a certificate has lines, and Java reads Latin-1.
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
    return "".join(each if each.isascii() else _by_number(each) for each in escaped)


def _by_number(character: str) -> str:
    """Return a character as Java writes it: the numbers of one or two units of UTF-16."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def as_environment(told: Mapping[str, str]) -> dict[str, str]:
    """The variables that the official image turns into the same file."""
    return {
        "CLUSTER_ID": CLUSTER_ID,
        **{_variable(name): value for name, value in told.items()},
    }


def _variable(name: str) -> str:
    escaped = name.replace("_", "__").replace("-", "___").replace(".", "_")
    return f"KAFKA_{escaped.upper()}"
