"""What several of these tests need."""

from __future__ import annotations

import pytest

from services.broker.ports import free_ports


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on."""
    (port,) = free_ports(1)
    return port
