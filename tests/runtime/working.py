"""The parts that all tasks of a worker share, without a worker and without a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

import faust
import pytest

from headrace.contracts.pipeline import PipelineSpec
from headrace.services.kafka.limits import Limits
from headrace.services.runtime.task.table import StateTable
from headrace.services.runtime.task.work import Work
from headrace.services.settings import Settings

_NOWHERE = "127.0.0.1:1"


def _nobody(*_: object) -> NoReturn:
    pytest.fail("nobody is asked, nothing fails and no task is opened")


@asynccontextmanager
async def working(spec: PipelineSpec, folder: Path) -> AsyncIterator[Work]:
    """Yield them, with a table for each hop; they find no broker."""
    settings = Settings(bootstrap_servers=_NOWHERE, state_folder=folder)
    work = Work(spec, settings, _nobody, _nobody, _nobody, Limits({}))
    app = faust.App(spec.pipeline, broker=f"kafka://{_NOWHERE}", store="memory://")
    for hop in spec.hops():
        work.tables[hop.name] = StateTable(app, hop.name, work.folder / hop.name, work.memory)
    await work.restorer.start()
    try:
        yield work
    finally:
        await work.restorer.stop()
