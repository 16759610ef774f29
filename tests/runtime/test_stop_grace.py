"""Docker waits for a sidecar of `docker/compose.yaml` for as long as its stop may take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from headrace.contracts.time import parse_duration_ms
from headrace.services.runtime.lifecycle import stops_within_s
from headrace.services.settings import read_settings
from tests.kafka.compose import COMPOSE


def _sidecars() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, service in yaml.safe_load(COMPOSE.read_text("utf-8"))["services"].items():
        if service["image"].startswith("headrace/sidecar"):
            yield name, service


SIDECARS = dict(_sidecars())


@pytest.mark.parametrize("name", SIDECARS)
def test_a_sidecar_is_not_killed_while_it_stops(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = SIDECARS[name]
    for variable, text in service["environment"].items():
        monkeypatch.setenv(variable, text)
    waits_s = parse_duration_ms(service["stop_grace_period"]) / 1000
    assert waits_s > stops_within_s(read_settings())
