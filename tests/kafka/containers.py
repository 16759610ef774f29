"""Brokers in containers, by Testcontainers: the official image, or the stand-in for it.

The host's port is chosen before the start, as for the embedded broker. So the advertised address is
plain configuration, the same for both images, and it outlives a kill and a restart, which a port of
Docker's choice does not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import NotFound
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from headrace.services.broker.embedded import LIGHT_JAVA
from headrace.services.broker.kraft import Endpoint, Node, as_environment, properties
from headrace.services.broker.metadata import known_brokers
from headrace.services.broker.ports import LOOPBACK, free_ports

# Testcontainers' reaper is one more image to pull. `sweep` does its work.
testcontainers_config.ryuk_disabled = True
OWNER = "headrace.owner"
"""The label with the number of the process that a container belongs to."""
_CLIENTS, _BROKERS, _CONTROLLERS = 9_092, 9_093, 9_094
_DATA = "/var/lib/kafka/data"
_JAVA = {
    "KAFKA_HEAP_OPTS": "-Xmx128m",
    "KAFKA_JVM_PERFORMANCE_OPTS": " ".join(LIGHT_JAVA),
}
_READY_WITHIN_S = 180.0
_ASK_AGAIN_S = 0.02
_ANSWER_WITHIN_S = 2.0


class ContainerBroker:
    """One broker in a container."""

    def __init__(self, image: str, node: Node, network: Network, told: Mapping[str, str]) -> None:
        self._number = node.number
        self._port = int(node.clients.address.rpartition(":")[2])
        self._made = False
        self.container = owned(DockerContainer(image))
        self.container.with_envs(**as_environment(told), **_JAVA)
        self.container.with_network(network)
        self.container.with_network_aliases(node.brokers.address.partition(":")[0])
        publish(self.container, _CLIENTS, self._port)

    def launch(self) -> None:
        """Start it, the first time or again, without waiting for it."""
        if self._made:
            self.container.get_wrapped_container().start()
        else:
            self.container.start()
            self._made = True

    def wait_ready(self, brokers: int) -> None:
        """Return when it answers, and knows itself and as many brokers as these."""
        give_up_at = time.monotonic() + _READY_WITHIN_S
        while True:
            known = known_brokers(self._port, timeout_s=_ANSWER_WITHIN_S)
            if self._number in known and len(known) >= brokers:
                return
            if time.monotonic() > give_up_at or not self._runs():
                message = f"the broker in a container did not start:\n{self._says()}"
                raise AssertionError(message)
            time.sleep(_ASK_AGAIN_S)

    def start(self) -> None:
        """Start it again; returns when it answers."""
        self.launch()
        self.wait_ready(brokers=1)

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self.container.get_wrapped_container().kill("SIGKILL")
        self.container.get_wrapped_container().wait()

    def pause(self) -> None:
        """Freeze it."""
        self.container.get_wrapped_container().pause()

    def resume(self) -> None:
        """Let it go on."""
        self.container.get_wrapped_container().unpause()

    def _runs(self) -> bool:
        self.container.reload()
        return bool(self.container.get_wrapped_container().status == "running")

    def _says(self) -> str:
        return str(self.container.get_wrapped_container().logs(tail=20).decode())


class ContainerBrokers:
    """A broker, or a cluster of them, in a network of their own."""

    def __init__(
        self, image: str, network: Network, own: Mapping[str, str] | None = None, brokers: int = 1
    ) -> None:
        nodes = [_node(number, port) for number, port in enumerate(free_ports(brokers), start=1)]
        self.bootstrap_servers = ",".join(node.clients.address for node in nodes)
        self.inside_servers = ",".join(node.brokers.address for node in nodes)
        self.brokers = [
            ContainerBroker(image, node, network, properties(node, nodes, _DATA) | dict(own or {}))
            for node in nodes
        ]

    def start(self) -> None:
        """Start all, the first time or again; returns when each answers and knows the others."""
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready(len(self.brokers))

    def stop(self) -> None:
        """Remove all, with what they hold."""
        for broker in self.brokers:
            broker.container.stop()

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


@contextmanager
def container_brokers(
    image: str, own: Mapping[str, str] | None = None, brokers: int = 1
) -> Iterator[ContainerBrokers]:
    """Brokers that answer, and are gone behind the block."""
    with ExitStack() as stack:
        network = stack.enter_context(owned_network())
        made = ContainerBrokers(image, network, own, brokers)
        stack.callback(made.stop)
        made.start()
        yield made


def owned_network() -> Network:
    """A network that is swept when its owner was killed."""
    return Network(docker_network_kw={"labels": {OWNER: str(os.getpid())}})


@contextmanager
def owned_volume() -> Iterator[str]:
    """The name of a volume, which is removed behind the block."""
    with _docker() as client:
        volume = client.volumes.create(labels={OWNER: str(os.getpid())})
        try:
            yield volume.name
        finally:
            volume.remove()


def owned(container: DockerContainer, **options: Any) -> DockerContainer:
    """The same container with Docker's own options; it is swept when its owner was killed."""
    return container.with_kwargs(labels={OWNER: str(os.getpid())}, **options)


def publish(container: DockerContainer, port: int, host_port: int | None) -> None:
    """Publish a port on this machine alone; None is a port of Docker's choice."""
    # Docker takes a pair as well; Testcontainers hands it on without knowing so.
    container.ports[str(port)] = (LOOPBACK, host_port)  # type: ignore[assignment]


def docker_answers() -> bool:
    """Whether there is a Docker that lets us in."""
    command = shutil.which("docker")
    # As the Makefile asks. The library leaks a socket where nobody answers.
    return (
        command is not None
        and not subprocess.run([command, "info"], capture_output=True, check=False).returncode
    )


def has_image(name: str) -> bool:
    """Whether an image is here already."""
    with _docker() as client:
        return bool(client.images.list(name=name))


def sweep() -> None:
    """Remove what runs left behind that were killed."""
    with _docker() as client:
        left = {"label": OWNER}
        # Another run that sweeps may be quicker.
        for container in client.containers.list(all=True, filters=left, ignore_removed=True):
            with suppress(NotFound):
                if _is_over(container.labels):
                    container.remove(force=True, v=True)
        for network in client.networks.list(filters=left):
            with suppress(NotFound):
                if _is_over(network.attrs["Labels"]):
                    network.remove()
        for volume in client.volumes.list(filters=left):
            with suppress(NotFound):
                if _is_over(volume.attrs["Labels"]):
                    volume.remove()


def _is_over(labels: Mapping[str, str]) -> bool:
    return not Path(f"/proc/{labels[OWNER]}").exists()


@contextmanager
def _docker() -> Iterator[docker.DockerClient]:
    client = docker.from_env(timeout=30)
    try:
        yield client
    finally:
        client.close()


def _node(number: int, port: int) -> Node:
    name = f"kafka-{number}"
    return Node(
        number,
        clients=Endpoint(f":{_CLIENTS}", f"{LOOPBACK}:{port}"),
        brokers=Endpoint(f":{_BROKERS}", f"{name}:{_BROKERS}"),
        controllers=Endpoint(f":{_CONTROLLERS}", f"{name}:{_CONTROLLERS}"),
    )
