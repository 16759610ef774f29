"""Fixtures that several of these tests need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.services.broker.ports import free_ports
from tests.runtime.sidecar import MakePipeline, making_pipelines


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on."""
    (port,) = free_ports(1)
    return port


@pytest.fixture
def make_pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakePipeline]:
    """Make pipelines for one test; the shared broker starts if one is made on it."""

    def shared_servers() -> str:
        servers: str = request.getfixturevalue("kafka").bootstrap_servers
        return servers

    with making_pipelines(shared_servers, tmp_path) as make:
        yield make
