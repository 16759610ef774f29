"""How a sidecar reports progress on its cleaned topic, in the compacted topic `<cleaned>.progress`.

Three kinds of rows, all JSON so that anybody can read them:

    key `pipeline`, in partition 0     which pipeline writes the topic, how it is partitioned, and
                                       the options by which a reader may rely on it
    key `N`, in partition N            how far partition N of the cleaned topic is
    key `N@M`, in partition N          the same at a milestone: the first that was written behind M
                                       times 100,000 offsets of the cleaned partition

A sidecar writes a row in the transaction that carries the records behind the row. But a broker
makes the partitions of a transaction readable one by one, and a reader asks for their ends one by
one. So a reader may see the row before those records. The row therefore names the last of them. It
counts once the reader has read the cleaned partition up to there: the reader then has every record
on time below `progress_ms`. If a topic has no new rows, it is quiet. If its progress stands still
while its source grows, it is slow.

Compaction leaves the last row of each key. A reader far behind goes by the milestones, so it
releases a backlog as it reads, and not all of it at the end. Readers of the previous version ignore
milestones.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

PIPELINE_KEY = b"pipeline"
MILESTONE_OFFSETS = 100_000
_AT = b"@"


class Progress(NamedTuple):
    """How far one partition of a cleaned topic is."""

    partition: int
    progress_ms: int
    """The lowest timestamp that a later record on time can still have."""
    stream_time_ms: int
    """The highest timestamp that came in; in a row that is idle, of what left a reorder."""
    source_topic: str
    source_offset: int
    """The offset, in the source's partition, of the first record that this does not cover."""
    cleaned_offset: int | None = None
    """The offset of the last cleaned record, in this partition, that belongs before this.

    Null where no record was ever cleaned, and missing in rows that older sidecars wrote.
    """
    is_idle: bool = False
    """The source's partition is read to its end and silent, so no reader must wait for this one.

    Such a row repeats the last commit, but for the stream time: a reorder may hold records, and
    readers must not go as far as those. If there never was a record, both times are -1. It holds
    until the next row of the partition. A row that is not idle does not have the field.
    """


def progress_row(progress: Progress) -> tuple[bytes, bytes]:
    """Return key and value of a row."""
    fields = progress._asdict()
    if not progress.is_idle:
        del fields["is_idle"]
    return b"%d" % fields.pop("partition"), _dumps(fields)


def milestone_of(progress: Progress) -> int:
    """Return the milestone that a partition has passed last; 0 before the first."""
    return (progress.cleaned_offset or 0) // MILESTONE_OFFSETS


def milestone_row(progress: Progress) -> tuple[bytes, bytes]:
    """Return key and value of the row that compaction keeps when later rows have come."""
    key, value = progress_row(progress)
    return b"%b%b%d" % (key, _AT, milestone_of(progress)), value


def read_progress(key: bytes | None, value: bytes | None) -> Progress | None:
    """Return the progress in a row, None where it is a row of another kind."""
    if key is None or value is None:
        return None
    partition, at, milestone = key.partition(_AT)
    if not partition.isdigit() or (at and not milestone.isdigit()):
        return None
    said = json.loads(value)
    # A later version may add fields.
    known = {name: said[name] for name in Progress._fields if name in said}
    return Progress(partition=int(partition), **known)


class CleanedBy(NamedTuple):
    """Which pipeline writes a cleaned topic, and how."""

    pipeline: str
    layout: int
    """The version of these rows."""
    partitioned_by: str
    """`source` where a record keeps its source's partition, `id of NAME` behind a `by: id`."""
    spec: dict[str, Any]
    """The pipeline, as in its file."""


LAYOUT = 1


def cleaned_by_row(cleaned_by: CleanedBy) -> tuple[bytes, bytes]:
    """Return key and value of the row."""
    return PIPELINE_KEY, _dumps(cleaned_by._asdict())


def read_cleaned_by(key: bytes | None, value: bytes | None) -> CleanedBy | None:
    """Return the pipeline in a row, None where it is a row of another kind."""
    if key != PIPELINE_KEY or value is None:
        return None
    said = json.loads(value)
    # A later version may add fields. Where it leaves some out, its layout is another.
    return CleanedBy(*(said.get(name) for name in CleanedBy._fields))


def _dumps(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
