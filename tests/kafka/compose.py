"""`docker/compose.yaml` without the compose command, which is missing on many machines.

Every key that a service has is either done here as compose would do it, or named as one that makes
no difference to a test; an unknown one is refused, so that no test passes by leaving something out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tests.kafka.containers import owned, publish

COMPOSE = Path(__file__).parents[2] / "docker" / "compose.yaml"
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
_HANDED_ON = ("cap_drop", "mem_limit", "read_only", "security_opt")
_DONE = {"command", "deploy", "environment", "image", "ports", "tmpfs", *_HANDED_ON}
# A test starts services in order and once, stops them hard, and needs no data behind it.
_WITHOUT_EFFECT = {"depends_on", "healthcheck", "restart", "stop_grace_period", "volumes"}


def services(variables: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The services by name, with these variables put in."""
    text = _VARIABLE.sub(lambda found: variables.get(found[1], found[2]), COMPOSE.read_text())
    return dict(yaml.safe_load(text)["services"])


def containers(name: str, service: Mapping[str, Any], network: Network) -> list[DockerContainer]:
    """The containers of a service, none of them started."""
    unknown = service.keys() - _DONE - _WITHOUT_EFFECT
    assert not unknown, f"tests/kafka/compose.py does not know {sorted(unknown)}"
    replicas = service.get("deploy", {}).get("replicas", 1)
    return [_container(name, service, network) for _ in range(replicas)]


def _container(name: str, service: Mapping[str, Any], network: Network) -> DockerContainer:
    options = {key: service[key] for key in _HANDED_ON if key in service}
    container = owned(DockerContainer(service["image"]), **options)
    container.with_envs(**service["environment"])
    container.with_network(network)
    container.with_network_aliases(name)
    if "command" in service:
        container.with_command(service["command"])
    for folder in service.get("tmpfs", ()):
        container.with_tmpfs_mount(folder)
    for published in service["ports"]:
        address, host_port, port = published.split(":")
        assert address == "127.0.0.1", f"{name} is published to other machines"
        publish(container, int(port), int(host_port) if host_port else None)
    return container
