"""Vectors put together: those with one pipeline share a sidecar, a partition of its source each.

One partition is one task with a stream time of its own, which is what a vector means. By id there
is one stream time for all partitions, and whoever fails takes the sidecar along: such a vector has
a sidecar of its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.contracts.record import Record
from tests.conformance.pipelines import Operators, operators_of
from tests.conformance.vectors import Vector, is_record, record_of

PLACE_HEADER = "conformance.place"
"""Which input of its vector a record is; only where records leave as they came."""
OFFSET_HEADER = "conformance.offset"
"""The offset that a vector gives a record, since no broker repeats or leaves out offsets."""


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a vector that goes to one partition of the source."""

    vector: Vector
    places: Sequence[int]
    """Indexes of its inputs."""

    def records(self, topic: str, partition: int, header: str | None) -> list[Record]:
        """The inputs as they go to the source."""
        return [
            _sent(self.vector["input"][place], place, header)._replace(
                topic=topic, partition=partition, offset=None
            )
            for place in self.places
        ]

    def offset_of(self, place: int) -> int:
        """Where an input stands in its partition."""
        return self.places.index(place)


@dataclass(slots=True)
class Group:
    """One sidecar, and whose records it takes."""

    operators: Operators
    topic_characters: int | None
    """How long the source's name must be, where bytes are counted and it counts with them."""
    header: str | None
    """The headers that every record has."""
    shares: list[Share] = field(default_factory=list)
    """By partition."""

    @property
    def error(self) -> Vector | None:
        """How it must end, None where it must not."""
        error: Vector | None = self.shares[0].vector.get("error")
        return error


def grouped(vectors: Iterable[Vector]) -> list[Group]:
    """As few sidecars as may be, in the order of their vectors."""
    groups: dict[str, Group] = {}
    for number, vector in enumerate(vectors):
        shares = _shares(vector)
        header = _header(vector, shares)
        group = Group(operators_of(vector), _topic_characters(vector), header)
        alone = number if vector.get("error") or _is_global(vector) else None
        same = json.dumps([group.operators, group.topic_characters, group.header, alone])
        groups.setdefault(same, group).shares.extend(shares)
    return list(groups.values())


def _shares(vector: Vector) -> list[Share]:
    places: dict[int, list[int]] = {}
    for place, entry in enumerate(vector["input"]):
        if is_record(entry) and _is_read(vector, entry):
            partition = 0 if _is_global(vector) else entry.get("partition", 0)
            places.setdefault(partition, []).append(place)
    return [Share(vector, of_partition) for of_partition in places.values() or [[]]]


def _is_read(vector: Vector, entry: Vector) -> bool:
    """A join's table does not go through `reorder`."""
    return not _joins(vector) or bool(entry["topic"] == "stream")


def _joins(vector: Vector) -> bool:
    return bool(vector["operator"] == "stream_table_join")


def _is_global(vector: Vector) -> bool:
    return bool(vector["config"].get("by") == "id")


def _header(vector: Vector, shares: list[Share]) -> str | None:
    if _joins(vector):
        return PLACE_HEADER
    return OFFSET_HEADER if any(map(_repeats_offsets, shares)) else None


def _repeats_offsets(share: Share) -> bool:
    """Whether a record is a replay of another; only deduplication knows such."""
    if share.vector["operator"] != "dedup":
        return False
    offsets = Counter(share.vector["input"][place]["offset"] for place in share.places)
    del offsets[None]
    return any(times > 1 for times in offsets.values())


def _topic_characters(vector: Vector) -> int | None:
    """Topics' names weigh something in a buffer that is bounded by bytes."""
    suppress = vector["config"].get("suppress") or {}
    if suppress.get("buffer", {}).get("max_bytes") is None:
        return None
    return len(vector["config"]["topic"])


def _sent(entry: Vector, place: int, header: str | None) -> Record:
    record = record_of(entry)
    if header is None:
        return record
    number = place if header == PLACE_HEADER else record.offset
    if number is None:
        return record
    return record._replace(headers=(*record.headers, (header, b"%d" % number)))
