"""The error with which a sidecar ends, where brokers are to blame: one sentence of ours."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka.errors import (
    CorruptRecordException,
    GroupAuthorizationFailedError,
    KafkaError,
)

from headrace.contracts.errors import HeadraceError, KafkaRefused, KafkaUnreachable, StateCorrupt
from headrace.services.kafka.limits import Limits
from headrace.services.runtime.worker import Worker
from headrace.services.settings import Settings
from tests.runtime.test_tally import SPEC

SERVERS = "127.0.0.1:1"


async def ending_of(problem: Exception, folder: Path) -> BaseException:
    """The error with which a worker ends that fails of this."""
    settings = Settings(bootstrap_servers=SERVERS, state_folder=folder)
    worker = Worker(SPEC, settings, {"raw": 1}, Limits({}))
    await worker.work.restorer.start()
    worker.fail(problem)
    await worker.work.restorer.stop()
    with pytest.raises(Exception) as found:  # noqa: PT011 - it is what is looked at
        await worker.failed()
    return found.value


@pytest.mark.parametrize(
    ("problem", "kind", "sentence"),
    [
        (
            KafkaError("Unexpected error in join group"),
            KafkaUnreachable,
            f"the brokers at {SERVERS} answered, and then failed",
        ),
        (CorruptRecordException("damaged"), KafkaUnreachable, "CorruptRecordException"),
        (GroupAuthorizationFailedError("clicks"), KafkaRefused, "do not let the user"),
        (StateCorrupt("damaged"), StateCorrupt, "damaged"),
    ],
    ids=["unexpected", "damaged on its way", "no right", "ours"],
)
def test_a_worker_ends_with_an_error_of_ours_whatever_brokers_do(
    tmp_path: Path, problem: Exception, kind: type[HeadraceError], sentence: str
) -> None:
    ending = asyncio.run(ending_of(problem, tmp_path))
    assert type(ending) is kind
    assert sentence in str(ending)


def test_a_worker_ends_with_a_bug_of_ours_as_it_is(tmp_path: Path) -> None:
    bug = KeyError("a bug")
    assert asyncio.run(ending_of(bug, tmp_path)) is bug
