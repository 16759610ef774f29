"""Many takeovers ask the leaders together which transactions stand open in partitions.

Takeovers come together: at a start, and when an instance has gone. A broker answers one request at
a time on a connection, so takeovers that ask while an answer is on its way share the next request.
No answer is of a time before it was asked for.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from aiokafka.errors import TopicAuthorizationFailedError, for_code
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import KafkaRefused
from headrace.services.kafka.requests import DescribeProducers, Writer

Send = Callable[[int, DescribeProducers], Awaitable[Any]]


class Open(NamedTuple):
    """A transaction that stands open in a partition."""

    place: TopicPartition
    leader: int
    first_offset: int
    writer: Writer


class _Told(NamedTuple):
    """The answer of a partition's leader."""

    code: int
    message: str | None
    opened: list[Open]


class _Question:
    """The next request to a leader, until it is answered."""

    def __init__(self) -> None:
        self.places: set[TopicPartition] = set()
        self.answered: asyncio.Future[dict[TopicPartition, _Told]] = asyncio.Future()


class Writers:
    """Asks leaders, one request a leader at a time."""

    def __init__(self, send: Send) -> None:
        """Send requests to a broker in this way."""
        self._send = send
        self._next: dict[int, _Question] = {}
        self._asking: dict[int, asyncio.Task[None]] = {}

    async def open_in(self, leader: int, places: Iterable[TopicPartition]) -> list[Open]:
        """Return the transactions that stand open in partitions, all of them led by this broker."""
        question = self._next.setdefault(leader, _Question())
        places = [*places]
        question.places.update(places)
        if leader not in self._asking:
            self._asking[leader] = asyncio.create_task(self._ask(leader))
        # A takeover that is cancelled leaves the others their answer.
        told = await asyncio.shield(question.answered)
        found = []
        for place in places:
            _check(told[place], place)
            found += told[place].opened
        return found

    async def _ask(self, leader: int) -> None:
        try:
            while (question := self._next.pop(leader, None)) is not None:
                try:
                    question.answered.set_result(await self._answer(leader, question))
                except Exception as problem:  # noqa: BLE001 (each takeover that asked raises it)
                    question.answered.set_exception(problem)
                    # All takeovers that asked may be cancelled by now.
                    question.answered.exception()
        finally:
            del self._asking[leader]

    async def _answer(self, leader: int, question: _Question) -> dict[TopicPartition, _Told]:
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for topic, number in sorted(question.places):
            numbers[topic].append(number)
        answer = await self._send(leader, DescribeProducers(numbers))
        told = {}
        for topic, described, _ in answer.topics:
            for number, code, message, producers, _ in described:
                place = TopicPartition(topic, number)
                opened = [
                    Open(place, leader, first_offset, Writer(identity, epoch, coordinator))
                    for identity, epoch, _, _, coordinator, first_offset, _ in producers
                    if first_offset >= 0
                ]
                told[place] = _Told(code, message, opened)
        return told


def _check(told: _Told, place: TopicPartition) -> None:
    error = for_code(told.code)
    if error is TopicAuthorizationFailedError:
        sentence = (
            f"the brokers do not let us see who writes to {place.topic}, which tells whether an"
            " outage left a transaction open there; grant Read"
        )
        raise KafkaRefused(sentence)
    if told.code:
        raise error(told.message)
