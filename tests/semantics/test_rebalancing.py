"""The tables of the page on rebalancing say what is there."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.contracts.time import format_duration_ms
from headrace.services.observe.names.of_task import TASK
from headrace.services.observe.names.of_worker import WORKER
from headrace.services.settings import Settings
from headrace.services.variables import variable

PAGE = Path(__file__).parents[2] / "contracts/semantics/rebalancing.md"
_SETTING = re.compile(r"^\| `(HEADRACE_\w+)` \| (\w+) \|", re.MULTILINE)
_METRIC = re.compile(r"`(headrace_\w+)")


def test_settings_have_the_names_and_defaults_of_the_page() -> None:
    fields = Settings.model_fields
    defaults = {
        variable(name): format_duration_ms(field.default)
        if name.endswith("_ms")
        else str(field.default)
        for name, field in fields.items()
    }
    stated = _SETTING.findall(PAGE.read_text("utf-8"))
    assert len(stated) == 6
    assert stated == [(name, defaults[name]) for name, _ in stated]


def test_metrics_have_the_names_of_the_page() -> None:
    stated = set(_METRIC.findall(PAGE.read_text("utf-8")))
    assert len(stated) > 5
    assert stated <= {metric.name for metric in WORKER} | {metric.name for metric in TASK}
