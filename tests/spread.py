"""How tests are spread over processes: two a core, and few of them start a Spark session."""

from __future__ import annotations

import os
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from headrace.services.runtime.machine.machine_memory import memory_of_machine_bytes
from tests.kafka.carriers import decide

_PROCESSES_A_CORE = 2
"""A test waits for a broker or for Spark a third of its time; another one runs meanwhile."""
_MEMORY_BYTES = 2 << 30
"""The memory that a process may take, with its Spark and its brokers."""
_CORES_A_SESSION = 2
"""On so many cores one process has all tests that share a session of Spark: each further session
costs its start, and Java that is cold again."""
_ASKS_FOR_SESSION = "spark: SparkSession"
_ASKS_FOR_MODULES = "python_files"
"""Tests that look through all modules stay together: a process parses them in two seconds."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run as many processes as cores and memory allow."""
    by_cores = _cores() * _PROCESSES_A_CORE
    return max(1, min(by_cores, memory_of_machine_bytes() // _MEMORY_BYTES))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Decide for all processes what they collect."""
    decide()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file in one process, and all that use Spark's session in few."""
    if config.getvalue("dist") != "loadfile":
        return None
    # Only a run that spreads tests has the library at hand.
    scheduler = import_module("xdist.scheduler").LoadFileScheduling(config, log)
    scheduler._split_scope = partial(_process_of, config.rootpath)  # noqa: SLF001 (made to be overridden)
    return scheduler


def _process_of(root: Path, test: str) -> str:
    """Return the name that all tests of one process have in common."""
    file = test.partition("::")[0]
    text = _text_of(root / file)
    if _ASKS_FOR_SESSION in text:
        sessions = max(1, _cores() // _CORES_A_SESSION)
        return f"Spark's session {crc32(file.encode()) % sessions}"
    return "all modules" if _ASKS_FOR_MODULES in text else file


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@cache
def _text_of(file: Path) -> str:
    return file.read_text("utf-8")
