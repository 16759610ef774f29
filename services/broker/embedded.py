"""The embedded broker, or several that form a cluster, on ports of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.contracts.errors import BrokerFailed, SettingsInvalid
from headrace.services.broker.archive import class_archive
from headrace.services.broker.jars import KafkaVersion, kafka_jars
from headrace.services.broker.java import find_java
from headrace.services.broker.kraft import (
    PLAINTEXT,
    Endpoint,
    Listener,
    Node,
    and_listeners,
    properties,
)
from headrace.services.broker.ports import LOOPBACK, check_free, free_ports
from headrace.services.broker.process import BrokerProcess
from headrace.services.broker.storage import kept_checkpoint, lay_out

# A heap that is collected in place, and code that is compiled once: a start of two seconds, and
# little memory. A broker under a bench wants `()` instead.
LIGHT_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOG_LEVEL = "-Dorg.apache.logging.log4j.level=WARN"
_ATTEMPTS = 3
_PORT_TAKEN = "Address already in use"


class EmbeddedBroker:
    """A real broker in a folder, listening on this machine only; with `brokers`, a cluster of them.

    Its ports are chosen before the start and stay the same until it is thrown away. The methods act
    on all brokers; `brokers[n]` has the same methods for one.
    """

    def __init__(  # noqa: PLR0913 - each by name, and each may be left out
        self,
        folder: Path,
        *,
        brokers: int = 1,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        clients_protocol: str = PLAINTEXT,
        users: Mapping[str, str] | None = None,
        listeners: Mapping[str, Listener] | None = None,
        heap_mib: int = 128,
        java_options: Sequence[str] = LIGHT_JAVA,
        version: KafkaVersion | None = None,
    ) -> None:
        """Fetch what is missing, and choose ports; nothing runs yet.

        Args:
            folder: Where the brokers keep what they are told and what is sent to them.
            brokers: How many.
            port: The port for the clients of the first; any free one without it.
            properties: Kafka's own settings, over ours.
            clients_protocol: How clients connect; certificates and the like are `properties`.
            users: Passwords by user name, for SCRAM.
            listeners: More ways in to the first, by name.
            heap_mib: How much memory Java gives to objects.
            java_options: Further options for Java.
            version: Which Kafka; without it as `kafka_version` has it.
        """
        java, jars = find_java(), kafka_jars(version=version)
        command = [java.path, "-cp", f"{jars}/*", _LOG_LEVEL]
        archive = class_archive(java, jars)
        if archive.exists():
            command.append(f"-XX:SharedArchiveFile={archive}")
        command += java_options
        self._checkpoint = kept_checkpoint(jars)
        folder = folder.absolute()
        self.brokers = [
            BrokerProcess(folder / f"broker-{number}", command, heap_mib)
            for number in range(1, brokers + 1)
        ]
        self._port = port
        self._properties = dict(properties or {})
        self._clients_protocol = clients_protocol
        self._users = dict(users or {})
        self._listeners = dict(listeners or {})
        self._prepared = False
        self._nodes = self._choose_ports()

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect."""
        return ",".join(node.clients.address for node in self._nodes)

    @property
    def plain_servers(self) -> str:
        """Where this machine's own tools connect without a password or certificate."""
        return ",".join(node.brokers.address for node in self._nodes)

    def prepare(self) -> None:
        """Prepare the folders for a first start; those that hold data keep them."""
        for broker in self.brokers:
            if "," in str(broker.data):
                message = (
                    f"{broker.data} has a comma, at which Kafka would split it into two folders;"
                    " name another folder with --data"
                )
                raise SettingsInvalid(message)
        try:
            self._prepare()
        except OSError as error:
            message = (
                f"{error.filename or self.brokers[0].folder} cannot be written to"
                f" ({error.strerror}); name another folder with --data"
            )
            raise SettingsInvalid(message) from error

    def _prepare(self) -> None:
        for broker, node in zip(self.brokers, self._nodes, strict=True):
            told = properties(node, self._nodes, str(broker.data), self._clients_protocol)
            plain, others = [node.brokers], []
            if node is self._nodes[0]:
                told = and_listeners(told, self._listeners)
                others = [one.clients for one in self._listeners.values()]
            (plain if self._clients_protocol == PLAINTEXT else others).append(node.clients)
            ports = [int(endpoint.address.rpartition(":")[2]) for endpoint in plain]
            bound = [endpoint.bound for endpoint in others]
            broker.configure(node.number, ports, bound, told | self._properties)
        if not self._users and self._checkpoint.exists():
            for broker, node in zip(self.brokers, self._nodes, strict=True):
                lay_out(broker.data, node.number, self._checkpoint)
        else:
            self._format()

    def start(self) -> None:
        """Start all, the first time or again; returns when each answers and knows the others."""
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                self._start_once()
            except BrokerFailed as error:
                self.kill()
                # Somebody took a port between our choice and the broker's start.
                if self._prepared or not attempts_left or _PORT_TAKEN not in str(error):
                    raise
                self._nodes = self._choose_ports()
            else:
                self._prepared = True
                return

    def stop(self) -> None:
        """Stop all; a cluster by killing, since its last brokers would wait for the first ones."""
        if len(self.brokers) > 1:
            self.kill()
        else:
            self.brokers[0].stop()

    def kill(self) -> None:
        """End all at once, as a power cut would."""
        for broker in self.brokers:
            broker.kill()

    def pause(self) -> None:
        """Freeze all."""
        for broker in self.brokers:
            broker.pause()

    def resume(self) -> None:
        """Let all go on."""
        for broker in self.brokers:
            broker.resume()

    def _choose_ports(self) -> list[Node]:
        ports = iter(free_ports(3 * len(self.brokers)))
        nodes = [
            Node(number, *(_endpoint(next(ports)) for _ in range(3)))
            for number in range(1, len(self.brokers) + 1)
        ]
        if self._port is not None:
            check_free(self._port)
            nodes[0] = nodes[0]._replace(clients=_endpoint(self._port))
        return nodes

    def _start_once(self) -> None:
        if not self._prepared:
            self.prepare()
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready(len(self.brokers))

    def _format(self) -> None:
        """Have Kafka's own tool prepare the folders; it knows how passwords are kept."""
        preparing = [broker.format(self._users) for broker in self.brokers]
        for one in preparing:
            said, _ = one.communicate()
            if one.returncode != 0:
                message = f"The embedded broker's storage could not be prepared:\n{said.strip()}"
                raise BrokerFailed(message)


def _endpoint(port: int) -> Endpoint:
    address = f"{LOOPBACK}:{port}"
    return Endpoint(address, address)
