"""The stream that is fed: seeded, so that a failing run can be made again.

It is full of what pipelines are for: duplicates, disorder, late records, tombstones, null keys,
records without id, repeated and empty headers, and some from a future that nobody believes. Part
of it comes in transactions, some of which are aborted: what was in those must never be seen.

Every record carries its number in a header, so no two are equal, and whatever comes out can be
traced to what went in.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from headrace.contracts.record import Record

BASE_MS = 1_700_000_000_000
POISON_MS = 4_102_444_800_000
"""The year 2100; records from then on are dead at the door."""
FLUSH_MS = BASE_MS + 40 * 86_400_000
"""Far behind every window, interval and grace of the stream itself."""
NUMBER_HEADER = "n"
_STEP_MS = 25
_KEYS = 120
_REPEATABLE = 150
"""A duplicate repeats one of so many records before it."""

Fate = Literal["plain", "committed", "aborted"]


class Portion(NamedTuple):
    """Records that are sent at once, and whether they are part of a transaction."""

    records: list[Record]
    fate: Fate
    ends: bool
    """Whether the transaction ends here."""


class Stream:
    """An endless stream over some partitions."""

    def __init__(
        self,
        topic: str,
        partitions: int,
        seed: int,
        *,
        quiet: Sequence[int] = (),
        behind_ms: Mapping[int, int] | None = None,
    ) -> None:
        """The same seed gives the same stream; quiet partitions have nothing but last words."""
        self._topic = topic
        self._random = random.Random(f"stream {seed}")
        self._times_ms = [BASE_MS - (behind_ms or {}).get(one, 0) for one in range(partitions)]
        self._speaking = [one for one in range(partitions) if one not in quiet]
        self._earlier: list[deque[Record]] = [deque(maxlen=_REPEATABLE) for _ in range(partitions)]
        self._next = 0
        self._fate: Fate = "committed"
        self._left = 0
        self._part_of: list[int] = []

    def portions(self, size: int) -> Iterator[Portion]:
        """The next portion of about so many records, again and again.

        A transaction that is open holds up whoever reads behind it; so one or two partitions take
        part in it, and the others flow.
        """
        everywhere = self._speaking
        while True:
            if self._left == 0:
                self._fate = "aborted" if self._random.random() < 0.3 else "committed"
                self._left = self._random.randint(1, 6)
                part = min(len(everywhere), self._random.randint(1, 2))
                self._part_of = self._random.sample(everywhere, part)
            in_transaction = self._random.randint(1, max(1, size // 2))
            yield Portion(self._records(size, everywhere), "plain", ends=True)
            self._left -= 1
            records = self._records(in_transaction, self._part_of)
            yield Portion(records, self._fate, self._left == 0)

    def last_words(self) -> list[Record]:
        """The end of a stream: some more of the same, and far later a record for each partition.

        The last one of a partition makes everything leave that still waits for its time.
        """
        last = self._records(60 * len(self._times_ms), range(len(self._times_ms)))
        for partition in range(len(self._times_ms)):
            for step in range(2):
                timestamp_ms = FLUSH_MS + step * 3_600_000
                last.append(self._made(partition, b"flush", f"flush-{partition}", timestamp_ms))
        return last

    def _records(self, count: int, partitions: Sequence[int]) -> list[Record]:
        return [self._record(self._random.choice(partitions)) for _ in range(count)]

    def _record(self, partition: int) -> Record:
        chance = self._random.random
        self._times_ms[partition] += self._random.randint(0, 2 * _STEP_MS)
        now_ms = self._times_ms[partition]
        earlier = self._earlier[partition]
        if earlier and chance() < 0.3:
            return self._again(self._random.choice(earlier), now_ms)
        timestamp_ms = now_ms - int(self._random.expovariate(1 / 700))
        if chance() < 0.02:
            timestamp_ms -= self._random.randint(5_000, 40_000)
        elif chance() < 0.005:
            timestamp_ms = POISON_MS + self._random.randint(0, 1_000)
        key = None if chance() < 0.05 else b"key-%d" % self._random.randrange(_KEYS)
        record = self._made(partition, key, self._identity(), timestamp_ms)
        earlier.append(record)
        return record

    def _identity(self) -> str | None:
        """An id that other partitions may use as well, or none."""
        if self._random.random() < 0.04:
            return None
        return f"id-{self._next // 8}-{self._random.randrange(6)}"

    def _again(self, record: Record, now_ms: int) -> Record:
        """A duplicate: the same key and id, seldom the same time, never the same number."""
        timestamp_ms = record.timestamp_ms
        if timestamp_ms < POISON_MS and self._random.random() < 0.7:
            timestamp_ms = now_ms - self._random.randint(0, 2_000)
        named = [value for name, value in record.headers if name == "id"]
        identity = named[-1].decode() if named and named[-1] is not None else None
        return self._made(record.partition, record.key, identity, timestamp_ms)

    def _made(
        self, partition: int, key: bytes | None, identity: str | None, timestamp_ms: int
    ) -> Record:
        chance = self._random.random
        number = b"%d" % self._next
        self._next += 1
        value = None if chance() < 0.05 else b'{"number": %s}' % number
        headers: list[tuple[str, bytes | None]] = [(NUMBER_HEADER, number)]
        if chance() < 0.1:
            headers.insert(0, ("id", b"not the last one of this name"))
        if chance() < 0.1:
            headers.append(("empty", b"" if chance() < 0.5 else None))
        if identity is not None:
            headers.append(("id", identity.encode()))
        if chance() < 0.1:
            headers.append((NUMBER_HEADER, b"again"))
        return Record(key, value, timestamp_ms, tuple(headers), self._topic, partition, None)
