"""Lines of libraries say what happens next, and not only what went wrong."""

from __future__ import annotations

import logging
from io import StringIO

import pytest
from aiokafka.errors import NotLeaderForPartitionError

from headrace.services.kafka.fenced import GivenUpError
from headrace.services.observe.logs import configure
from tests.observe.test_logs import lines, logged


def test_a_batch_that_was_given_up_is_not_said_to_be_sent_again() -> None:
    stream = StringIO()
    configure("json", "info", stream)
    said = logging.getLogger("aiokafka.producer.sender")
    said.warning("Got error produce response: %s", GivenUpError())
    (line,) = lines(stream)
    assert line["event"] == (
        "Got error produce response: GivenUpError; its partition begins again from its last commit"
    )


def test_a_library_that_says_what_went_wrong_is_completed_by_what_happens_next() -> None:
    stream = StringIO()
    configure("json", "info", stream)
    logging.getLogger("aiokafka.producer.sender").warning(
        "Got error produce response on topic-partition %s, retrying. Error: %s",
        ("clicks", 3),
        NotLeaderForPartitionError,
    )
    (line,) = lines(stream)
    assert line["event"] == (
        "Got error produce response on topic-partition ['clicks', 3], retrying."
        " Error: NotLeaderForPartitionError; the records are sent again"
    )


@pytest.mark.parametrize(
    ("message", "follows"),
    [
        (
            "Heartbeat failed for group %s: coordinator (node 1) is either not started or",
            "the group's coordinator is looked for",
        ),
        ("Heartbeat failed for group %s because it is rebalancing", "the instance joins again"),
        (
            "Heartbeat failed for group %s: generation id is not  current.",
            "the instance joins again",
        ),
    ],
)
def test_a_heartbeat_that_failed_is_completed_by_its_own_reason(message: str, follows: str) -> None:
    said = logging.getLogger("aiokafka.consumer.group_coordinator")
    line = logged(lambda: said.warning(message, "clicks"))
    assert line["event"].endswith(f"; {follows}")
