"""The demo runs alike in the environment of any installation."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.services.broker.jars import VERSION_VARIABLE
from headrace.services.cli.demo.running import forget_settings
from headrace.services.settings import Settings, read_settings


def test_the_demo_forgets_the_settings_of_an_installation_and_no_other_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    servers = tmp_path / "servers"
    servers.write_text("kafka:9092")
    kept = {VERSION_VARIABLE: "4.3.1", "HEADRACE_SERVICE_HOST": "10.0.0.1"}
    settings = {
        "HEADRACE_SECURITY_PROTOCOL": "SSL",
        "HEADRACE_HTTP_PORT": "8080",
        "HEADRACE_BOOTSTRAP_SERVERS_FILE": str(servers),
        "HEADRACE_COMMIT_INTERVAL": "1m",
    }
    for name, value in {**settings, **kept}.items():
        monkeypatch.setenv(name, value)
    forget_settings()
    assert read_settings() == Settings()
    assert {name: os.environ.get(name) for name in kept} == kept
    assert settings.keys() & os.environ.keys() == set()
