"""All processes of a run make containers of one image, or none of them makes any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.carriers import DECIDED, container_image, decide


@pytest.fixture
def asked_again() -> Iterator[None]:
    container_image.cache_clear()
    yield
    container_image.cache_clear()


@pytest.mark.usefixtures("asked_again")
def test_a_process_takes_the_answer_that_the_first_one_got(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers_the_second = tmp_path / "docker"
    answers_the_second.write_text(f"#!/bin/sh\n! /bin/mkdir {tmp_path}/asked 2>/dev/null\n")
    answers_the_second.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HEADRACE_KAFKA", "auto")
    monkeypatch.setenv(DECIDED, "by this run")
    monkeypatch.delenv(DECIDED)
    decide()
    # As in another process.
    container_image.cache_clear()
    assert container_image() is None
