"""One broker that is found by several addresses."""

from __future__ import annotations

from typing import NamedTuple

from headrace.services.broker.kraft import PLAINTEXT, Endpoint, Listener
from headrace.services.broker.ports import LOOPBACK, free_ports
from tests.kafka.fixtures import OwnKafka

NOWHERE = "kafka.example.invalid"


class Addresses(NamedTuple):
    """Where it is."""

    misnamed: str
    """Where it gives a name for itself that nobody knows."""
    six: str
    """Where it is by IPv6 alone."""


def broker_by_several(make: OwnKafka) -> Addresses:
    """Start it."""
    misnamed, six = free_ports(2)
    first, last = f"{LOOPBACK}:{misnamed}", f"[::1]:{six}"
    listeners = {
        "MISNAMED": Listener(PLAINTEXT, Endpoint(first, f"{NOWHERE}:{misnamed}")),
        "SIX": Listener(PLAINTEXT, Endpoint(last, last)),
    }
    make(listeners=listeners)
    return Addresses(first, last)
