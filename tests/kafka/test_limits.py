"""A topic whose `max.message.bytes` was changed takes as much as it says by now."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka.errors import NodeNotReadyError, TopicAuthorizationFailedError

from headrace.services.kafka import limits
from headrace.services.kafka.limits import BATCH_BYTES, Limits

TOLD = {"cleaned": 60_000, "dead": 70_000}


def answer(told: Mapping[str, int]) -> Any:
    """Make the answer of a broker that was asked for settings."""
    resources: list[Any] = [
        (0, None, 2, name, [("max.message.bytes", str(size), False, 1, False, [])])
        for name, size in told.items()
    ]
    refused: Any = (TopicAuthorizationFailedError.errno, "no", 2, "hidden", [])
    return type("Answer", (), {"resources": [*resources, refused]})


async def asked(known: Limits, answers: list[Any]) -> None:
    """Have the brokers answer so, one by one."""
    waiting = iter(answers)

    async def ask(_request: Any) -> Any:
        try:
            told = next(waiting)
        except StopIteration:
            raise asyncio.CancelledError from None
        if isinstance(told, Exception):
            raise told
        return told

    with pytest.raises(asyncio.CancelledError):
        await known.keep_asking(ask)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_ASK_AGAIN_S", 0.0)


def test_a_limit_that_was_raised_holds_though_a_question_failed() -> None:
    known = Limits(TOLD)
    answers = [answer(TOLD), NodeNotReadyError(), answer(TOLD | {"cleaned": 9_000_000})]
    asyncio.run(asked(known, answers))
    assert (known.record_bytes("cleaned"), known.batch_bytes("cleaned")) == (9_000_000, BATCH_BYTES)
    assert (known.record_bytes("dead"), known.batch_bytes("dead")) == (70_000, 70_000)


def test_refusals_teach_until_the_setting_is_another() -> None:
    known = Limits(TOLD)
    known.learn("cleaned", 50_000, records=1)
    asyncio.run(asked(known, [answer(TOLD)]))
    assert known.record_bytes("cleaned") == 49_999
    asyncio.run(asked(known, [answer(TOLD | {"cleaned": 80_000})]))
    assert (known.record_bytes("cleaned"), known.batch_bytes("cleaned")) == (80_000, 80_000)


def test_settings_that_are_hidden_are_not_asked_for() -> None:
    async def ask(_request: Any) -> None:
        pytest.fail("it asks")

    async def live() -> None:
        asking = asyncio.ensure_future(Limits({}).keep_asking(ask))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asking.done()
        asking.cancel()

    asyncio.run(live())
