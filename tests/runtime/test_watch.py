"""A coroutine that runs beside a worker does not die in silence."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.services.runtime import watch
from headrace.services.runtime.worker import Worker


class Died(Exception):
    """An error that no code expects."""


async def dies(*_: Any) -> None:
    raise Died


async def lives(*_: Any) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("victim", ["_look", "keep_purging", "keep_asking", "keep_collecting"])
def test_a_coroutine_that_dies_beside_a_worker_ends_it(
    monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    async def live() -> BaseException:
        failed = asyncio.get_running_loop().create_future()
        of = {name: dies if name == victim else lives for name in ("_look", "keep_collecting")}
        for name, run in of.items():
            monkeypatch.setattr(watch, name, run)
        purging = dies if victim == "keep_purging" else lives
        asking = dies if victim == "keep_asking" else lives
        work = SimpleNamespace(
            metrics=None,
            purges=SimpleNamespace(keep_purging=purging),
            limits=SimpleNamespace(keep_asking=asking),
            restorer=SimpleNamespace(ask=None),
        )
        worker = SimpleNamespace(
            settings=SimpleNamespace(http_port=None, stall_timeout_ms=1_000),
            work=work,
            snapshot=lambda: None,
            fail=failed.set_result,
        )
        async with watch.watched(cast("Worker", worker)):
            problem: BaseException = await failed
            return problem

    assert isinstance(asyncio.run(live()), Died)
