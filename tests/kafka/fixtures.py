"""Brokers as fixtures.

`kafka` is for every test that leaves the broker alone: one for the whole run, so topics need names
of their own (`fresh_name`). `kafka_own` makes brokers that a test may break or configure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from services.broker.embedded import EmbeddedBroker
from tests.kafka.clients import Clients
from tests.kafka.sharing import shared_broker


@dataclass(frozen=True)
class SharedKafka:
    """The broker of the whole run: to be used, not to be broken."""

    bootstrap_servers: str

    @property
    def clients(self) -> Clients:
        """Clients of this broker."""
        return Clients(self.bootstrap_servers)


class OwnKafka(Protocol):
    """Makes and starts a broker, or several, that this test alone uses."""

    def __call__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        brokers: int = 1,
        clients_protocol: str = "PLAINTEXT",
        users: Mapping[str, str] | None = None,
        heap_mib: int = 128,
    ) -> EmbeddedBroker:
        """Start it; it is stopped behind the test."""
        ...


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedKafka]:
    """A broker that the whole run shares."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / "shared-kafka"
    folder.mkdir(exist_ok=True)
    with shared_broker(folder) as servers:
        yield SharedKafka(servers)


@pytest.fixture
def kafka_own(tmp_path: Path) -> Iterator[OwnKafka]:
    """Make brokers for one test."""
    with _own_brokers(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def kafka_own_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnKafka]:
    """Make brokers for the tests of a module."""
    with _own_brokers(tmp_path_factory.mktemp("kafka")) as make:
        yield make


@contextmanager
def _own_brokers(folder: Path) -> Iterator[OwnKafka]:
    with ExitStack() as stack:
        made: list[EmbeddedBroker] = []

        def make(
            properties: Mapping[str, str] | None = None,
            *,
            brokers: int = 1,
            clients_protocol: str = "PLAINTEXT",
            users: Mapping[str, str] | None = None,
            heap_mib: int = 128,
        ) -> EmbeddedBroker:
            broker = EmbeddedBroker(
                folder / f"kafka-{len(made)}",
                brokers=brokers,
                properties=properties,
                clients_protocol=clients_protocol,
                users=users,
                heap_mib=heap_mib,
            )
            made.append(broker)
            stack.callback(broker.stop)
            broker.start()
            return broker

        yield make
