"""Brokers as fixtures.

`kafka` is for every test that leaves the broker alone: one for the whole run, so topics need names
of their own (`fresh_name`). `kafka_own` makes brokers that a test may break or configure.
`kafka_carrier` does so on each carrier that there is, a test run for each.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.broker.kraft import Listener
from tests.kafka.carriers import PROCESS, carriers, container_image
from tests.kafka.clients import Clients
from tests.kafka.containers import container_brokers, sweep
from tests.kafka.sharing import KEEPS, shared_broker

RAN_ON = "kafka carrier"
"""The property of a test's report that says what carried its broker."""


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
        listeners: Mapping[str, Listener] | None = None,
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


class Broker(Protocol):
    """A test can do this to a broker, or to one of several, on any carrier."""

    def start(self) -> None:
        """Start it again; returns when it answers."""

    def kill(self) -> None:
        """End it at once, as a power cut would."""

    def pause(self) -> None:
        """Freeze it."""

    def resume(self) -> None:
        """Let it go on."""


class Brokers(Broker, Protocol):
    """A broker, or several."""

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect."""
        ...

    @property
    def brokers(self) -> Sequence[Broker]:
        """Each of them."""
        ...


class KafkaCarrier(Protocol):
    """Makes and starts brokers on one carrier."""

    def __call__(self, properties: Mapping[str, str] | None = None, *, brokers: int = 1) -> Brokers:
        """Start them; they are gone behind the test."""
        ...


_ALSO = pytest.mark.long("outages", why="where containers are, other tests have a process")


@pytest.fixture(
    params=[
        pytest.param(each, marks=_ALSO if each == PROCESS and len(carriers()) > 1 else ())
        for each in carriers()
    ]
)
def kafka_carrier(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> Iterator[KafkaCarrier]:
    """Make brokers on each carrier in turn."""
    carrier = str(request.param)
    record_property(RAN_ON, carrier)
    with ExitStack() as stack:
        if carrier == PROCESS:
            yield stack.enter_context(_own_brokers(tmp_path))
            return
        sweep()

        def make(properties: Mapping[str, str] | None = None, *, brokers: int = 1) -> Brokers:
            return stack.enter_context(container_brokers(carrier, properties, brokers))

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
            listeners: Mapping[str, Listener] | None = None,
            heap_mib: int = 128,
        ) -> EmbeddedBroker:
            broker = EmbeddedBroker(
                folder / f"kafka-{len(made)}",
                brokers=brokers,
                properties={**KEEPS, **(properties or {})},
                clients_protocol=clients_protocol,
                users=users,
                listeners=listeners,
                heap_mib=heap_mib,
            )
            made.append(broker)
            # A stop would close its logs, which nobody reads any more.
            stack.callback(broker.kill)
            broker.start()
            return broker

        yield make


@pytest.fixture
def image_of_kafka(record_property: Callable[[str, object], None]) -> str:
    """Return the image for a container of Kafka."""
    image = container_image()
    assert image is not None, "a test that needs containers was collected where there are none"
    record_property(RAN_ON, image)
    return image


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which carriers ran, since a run without containers looks just as green."""
    tests: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for report in (one for some in terminalreporter.stats.values() for one in some):
        if isinstance(report, pytest.TestReport):
            for carrier in (str(value) for name, value in report.user_properties if name == RAN_ON):
                tests[carrier] += report.when == "call"
                seconds[carrier] += round(report.duration)
    if tests:
        told = [f"{name} ({tests[name]} tests, {seconds[name]} s)" for name in sorted(tests)]
        without = (
            "" if container_image() else "; no containers (make image-of-kafka, where Docker is)"
        )
        terminalreporter.write_line(f"Kafka ran on: {', '.join(told)}{without}")
