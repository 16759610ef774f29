"""The pages that a worker serves over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from headrace.services.observe.health import Health, Watchdog, live, ready
from headrace.services.observe.metrics import CONTENT_TYPE, Metrics
from headrace.services.observe.snapshot import WorkerSnapshot

PLAIN = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """The answer to a request."""

    status: HTTPStatus
    content_type: str
    body: bytes


Page = Callable[[], Answer]


def sentence(status: HTTPStatus, text: str) -> Answer:
    """An answer in words."""
    return Answer(status, PLAIN, f"{text}\n".encode())


def pages(
    snapshot: Callable[[], WorkerSnapshot], metrics: Metrics, watchdog: Watchdog
) -> Mapping[str, Page]:
    """Every page by its path."""
    return {
        "/live": lambda: _health(live(watchdog.look())),
        "/ready": lambda: _health(ready(snapshot())),
        "/metrics": lambda: Answer(HTTPStatus.OK, CONTENT_TYPE, metrics.text()),
    }


def _health(health: Health) -> Answer:
    status = HTTPStatus.OK if health.is_well else HTTPStatus.SERVICE_UNAVAILABLE
    return sentence(status, health.sentence)
