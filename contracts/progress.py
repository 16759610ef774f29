"""What a sidecar says about its cleaned topic, in the compacted topic `<cleaned>.progress`.

Three kinds of rows, all JSON so that anybody can read them:

    key `pipeline`, in partition 0     which pipeline writes the topic, how it is partitioned, and
                                       the options by which a reader may rely on it
    key `N`, in partition N            how far partition N of the cleaned topic is
    key `N@M`, in partition N          the same at a milestone: the first that was said behind M
                                       times 100,000 offsets of the cleaned partition

A row is written in the transaction that carries the records it speaks of. But a broker makes the
partitions of a transaction readable one by one, and a reader asks for their ends one by one: the
row may be seen before those records. So it names the last of them, and counts for whoever has read
the cleaned partition up to there: every record on time below `progress_ms` was given to him. A
topic that says nothing new is quiet, one whose progress stands still while its source grows is
slow.

Compaction leaves the last row of each key. Milestones are what a reader far behind goes by: so it
releases a backlog as it reads, and not all of it at its end. Readers of the version before pass
them by.
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
    """The highest timestamp that came in."""
    source_topic: str
    source_offset: int
    """The offset, in the source's partition, of the first record that is not part of this."""
    cleaned_offset: int | None = None
    """The offset of the last cleaned record, in this partition, that belongs before this.

    Null where none was ever cleaned, and missing in rows that older sidecars wrote.
    """
    is_idle: bool = False
    """The source's partition is read to its end and silent, so nobody needs to wait for this one.

    Such a row repeats what the last commit said; where there never was a record, both times are -1.
    It holds until the next row of the partition. A row that is not idle does not have the field.
    """


def progress_row(progress: Progress) -> tuple[bytes, bytes]:
    """Key and value of a row."""
    fields = progress._asdict()
    if not progress.is_idle:
        del fields["is_idle"]
    return b"%d" % fields.pop("partition"), _dumps(fields)


def milestone_of(progress: Progress) -> int:
    """The milestone that a partition has passed last; 0 before the first."""
    return (progress.cleaned_offset or 0) // MILESTONE_OFFSETS


def milestone_row(progress: Progress) -> tuple[bytes, bytes]:
    """Key and value of the row that stays when later ones have come."""
    key, value = progress_row(progress)
    return b"%b%b%d" % (key, _AT, milestone_of(progress)), value


def read_progress(key: bytes | None, value: bytes | None) -> Progress | None:
    """The progress in a row, None where it is of another kind."""
    if key is None or value is None:
        return None
    partition, at, milestone = key.partition(_AT)
    if not partition.isdigit() or (at and not milestone.isdigit()):
        return None
    said = json.loads(value)
    # A later version may say more.
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
    """The pipeline as its file says it."""


LAYOUT = 1


def cleaned_by_row(cleaned_by: CleanedBy) -> tuple[bytes, bytes]:
    """Key and value of the row."""
    return PIPELINE_KEY, _dumps(cleaned_by._asdict())


def read_cleaned_by(key: bytes | None, value: bytes | None) -> CleanedBy | None:
    """The pipeline in a row, None where it is of another kind."""
    if key != PIPELINE_KEY or value is None:
        return None
    return CleanedBy(**json.loads(value))


def _dumps(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
