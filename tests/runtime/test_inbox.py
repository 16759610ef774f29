"""A task's inbox: when it lets the task go on, and the records that it gives at once."""

from __future__ import annotations

import asyncio

from headrace.contracts.record import Record
from headrace.services.runtime.input.inbox import Fetched, Inbox


class Source:
    """Brings batches."""

    def __init__(self) -> None:
        """It begins with the first record."""
        self.inbox = Inbox(lambda: None)
        self._next = 0

    def brings(self, count: int) -> list[Record]:
        """A batch of so many records."""
        records = [
            Record(b"key", b"value", 0, (), "raw", 0, offset)
            for offset in range(self._next, self._next + count)
        ]
        self._next += count
        self.inbox.expect(count, count)
        self.inbox.offer(Fetched(records, count))
        return records


def test_small_batches_are_taken_as_one_until_it_is_large_enough() -> None:
    source = Source()
    for count in (1, 2, 3, 4):
        source.brings(count)
    taken = source.inbox.take(5)
    assert taken is not None
    assert [record.offset for record in taken.records] == [0, 1, 2, 3, 4, 5]
    assert taken.size_bytes == 6
    rest = source.inbox.take(5)
    assert rest is not None
    assert [record.offset for record in rest.records] == [6, 7, 8, 9]
    assert source.inbox.take(5) is None


def test_batches_that_were_taken_keep_no_record() -> None:
    source = Source()
    batches = [source.brings(count) for count in (1, 2, 3)]
    taken = source.inbox.take(100)
    assert taken is not None
    source.inbox.took(taken)
    assert batches == [[], [], []]
    assert source.inbox.size_bytes == 0


def test_a_batch_that_says_that_records_are_gone_stays_alone() -> None:
    source = Source()
    for count in (1, 0, 1):
        source.brings(count)
    taken = [source.inbox.take(100) for _ in range(3)]
    assert [None if one is None else len(one.records) for one in taken] == [1, 0, 1]


def test_a_task_that_waits_for_more_sleeps_until_there_is_enough() -> None:
    async def run() -> list[bool]:
        source = Source()
        source.brings(1)
        waits = asyncio.create_task(source.inbox.wait_for_more(3, 120))
        seen = []
        for _ in range(2):
            await asyncio.sleep(0)
            source.brings(1)
            # The event, the timeout and the task take a turn of the loop each.
            for _ in range(10):
                await asyncio.sleep(0)
            seen.append(waits.done())
        await waits
        return seen

    assert asyncio.run(run()) == [False, True]


def test_a_task_that_waits_for_more_hears_that_others_wait() -> None:
    async def run() -> None:
        source = Source()
        source.brings(1)
        waits = asyncio.create_task(source.inbox.wait_for_more(3, 120))
        await asyncio.sleep(0)
        source.inbox.wake()
        await waits

    asyncio.run(run())


def test_a_task_that_waits_for_any_is_let_go_by_the_first() -> None:
    async def run() -> None:
        source = Source()
        source.brings(1)
        await source.inbox.wait_for_more(3, 0)
        assert source.inbox.take(100) is not None
        source.inbox.clear()
        waits = asyncio.create_task(source.inbox.wait(120))
        await asyncio.sleep(0)
        source.brings(1)
        await waits

    asyncio.run(run())
