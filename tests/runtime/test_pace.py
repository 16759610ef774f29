"""A transaction that was open for longer than it may last is told from one that somebody ended."""

from __future__ import annotations

import time

import pytest

from headrace.contracts.pipeline import PipelineSpec
from headrace.services.runtime.task.pace import Pace
from headrace.services.settings import Settings

SPEC = PipelineSpec.model_validate(
    {
        "pipeline": "clicks",
        "source": {"topic": "raw"},
        "operators": [{"deduplicate": {"by": "key", "interval": "1m"}}],
        "sink": {"topic": "cleaned"},
    }
)


def test_what_is_given_up_after_its_timeout_has_outlasted_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    pace = Pace(Settings(transaction_timeout_ms=2_000), SPEC.hops()[0])
    for was_open_s, has_outlasted in ((1.9, False), (2.1, True), (0.0, False)):
        pace.opened()
        clock[0] += was_open_s
        pace.given_up(1)
        assert pace.has_outlasted is has_outlasted
