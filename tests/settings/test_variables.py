"""Variables of settings: those that a pipeline's file is told of, and one that is a pipe."""

from __future__ import annotations

import os

import pytest

from headrace.contracts.errors import SettingsInvalid
from headrace.contracts.pipeline_text import SETTINGS
from headrace.services.settings import Settings, read_settings
from headrace.services.variables import variable


def test_every_variable_that_a_pipeline_is_told_of_is_a_setting() -> None:
    assert {*SETTINGS.values()} <= {*map(variable, Settings.model_fields)}


def test_a_setting_can_come_from_a_pipe_which_brings_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"pipe:9092\n")
    os.close(writer)
    monkeypatch.setenv("HEADRACE_BOOTSTRAP_SERVERS_FILE", f"/dev/fd/{reader}")
    try:
        assert read_settings().bootstrap_servers == "pipe:9092"
    finally:
        os.close(reader)


def test_a_certificate_in_a_pipe_is_refused_since_each_connection_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    os.close(writer)
    monkeypatch.setenv("HEADRACE_SECURITY_PROTOCOL", "SSL")
    monkeypatch.setenv("HEADRACE_SSL_CA_FILE", f"/dev/fd/{reader}")
    try:
        with pytest.raises(SettingsInvalid) as refused:
            read_settings()
    finally:
        os.close(reader)
    assert str(refused.value) == (
        f"HEADRACE_SSL_CA_FILE: `/dev/fd/{reader}` is no file; each connection reads it anew, so"
        " write the certificate or key into one"
    )
