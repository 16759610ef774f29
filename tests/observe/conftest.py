"""Logging belongs to the process, so each test gives it back as it was."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
import structlog

from headrace.services.observe.logs import LIBRARIES


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_of_other_tests() -> None:
    """Let Python find their garbage now: asyncio logs some, among the lines of a test here."""
    gc.collect()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Handlers and levels are put back behind each test."""
    root = logging.root
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level
    for name in (*LIBRARIES, "headrace"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()
