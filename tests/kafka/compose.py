"""`docker/compose.yaml` without the compose command, which is missing on many machines.

Every key that a service has is either done here as compose would do it, or named as one that makes
no difference to a test; an unknown one is refused, so that no test passes by leaving something out.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml
from testcontainers.core.container import DockerContainer

from headrace.services.broker.metadata import known_brokers
from headrace.services.broker.ports import LOOPBACK, free_ports
from tests.kafka.clients import Clients
from tests.kafka.containers import owned, owned_network, owned_volume, publish

WITHIN_S = 240.0
COMPOSE = Path(__file__).parents[2] / "docker" / "compose.yaml"
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
_HANDED_ON = ("cap_drop", "mem_limit", "read_only", "security_opt")
_DONE = {"command", "deploy", "environment", "image", "ports", "tmpfs", "volumes", *_HANDED_ON}
# A test starts the services that it names, in order and once, and stops them hard.
_WITHOUT_EFFECT = {"depends_on", "healthcheck", "profiles", "restart", "stop_grace_period"}
_ASK_AGAIN_S = 0.2


class Composed:
    """Services of the compose file in a network of their own; of them, the broker runs."""

    def __init__(self, document: Mapping[str, Any], port: int, stack: ExitStack) -> None:
        """Start the broker; whatever is started ends with the stack."""
        self._described: Mapping[str, Mapping[str, Any]] = document["services"]
        self.clients = Clients(f"{LOOPBACK}:{port}")
        self._stack = stack
        self._network = stack.enter_context(owned_network())
        self._volumes = {name: stack.enter_context(owned_volume()) for name in document["volumes"]}
        self.start("kafka")
        wait_until(lambda: bool(known_brokers(port, timeout_s=2.0)), "answer of the broker")

    def names(self, *profiles: str) -> list[str]:
        """The services of exactly these profiles, without the broker; those of none by default."""
        services = self._described.items()
        named = [name for name, one in services if one.get("profiles", []) == list(profiles)]
        return [name for name in named if name != "kafka"]

    def start(self, name: str, **changed: Any) -> list[DockerContainer]:
        """Start the containers of a service; `changed` stands over what is described."""
        service = {**self._described[name], **changed}
        unknown = service.keys() - _DONE - _WITHOUT_EFFECT
        assert not unknown, f"tests/kafka/compose.py does not know {sorted(unknown)}"
        replicas = service.get("deploy", {}).get("replicas", 1)
        made = [self._container(name, service) for _ in range(replicas)]
        return [self._stack.enter_context(container) for container in made]

    def _container(self, name: str, service: Mapping[str, Any]) -> DockerContainer:
        options = {key: service[key] for key in _HANDED_ON if key in service}
        container = owned(DockerContainer(service["image"]), **options)
        container.with_envs(**service.get("environment", {}))
        container.with_network(self._network)
        container.with_network_aliases(name)
        if "command" in service:
            container.with_command(service["command"])
        for mounted in service.get("tmpfs", ()):
            folder, _, said = mounted.partition(":")
            container.with_tmpfs_mount(folder, said)
        for mounted in service.get("volumes", ()):
            volume, _, folder = mounted.partition(":")
            container.with_volume_mapping(self._volumes.get(volume, volume), folder, "rw")
        _publish(container, name, service.get("ports", ()))
        return container


@contextmanager
def composing(image_of_kafka: str) -> Iterator[Composed]:
    """The compose file with its broker running; all is gone behind the block."""
    (port,) = free_ports(1)
    variables = {"HEADRACE_KAFKA_IMAGE": image_of_kafka, "HEADRACE_KAFKA_PORT": str(port)}
    text = _VARIABLE.sub(lambda found: variables.get(found[1], found[2]), COMPOSE.read_text())
    with ExitStack() as stack:
        yield Composed(yaml.safe_load(text), port, stack)


def wait_until(
    holds: Callable[[], bool], what: str, running: Iterable[DockerContainer] = ()
) -> None:
    """Wait until something holds; a container that must run and has ended fails the test."""
    containers = list(running)
    give_up_at = time.monotonic() + WITHIN_S
    while not holds():
        said = [one.get_wrapped_container().logs(tail=40).decode() for one in containers]
        for container, last in zip(containers, said, strict=True):
            container.reload()
            assert container.get_wrapped_container().status == "running", last
        assert time.monotonic() < give_up_at, "\n".join([f"no {what}:", *said])
        time.sleep(_ASK_AGAIN_S)


def wait_until_healthy(container: DockerContainer) -> None:
    """Wait until the image's own check finds it healthy."""

    def is_healthy() -> bool:
        container.reload()
        health = container.get_wrapped_container().attrs["State"]["Health"]
        return bool(health["Status"] == "healthy")

    wait_until(is_healthy, "health", [container])


def _publish(container: DockerContainer, name: str, ports: Iterable[str]) -> None:
    for published in ports:
        address, host_port, port = published.split(":")
        assert address == "127.0.0.1", f"{name} is published to other machines"
        publish(container, int(port), int(host_port) if host_port else None)
