"""Every topic of a pipeline: its name, and the settings without which it would lose records.

Event time may be older than any retention, and a broker deletes by a record's timestamp. So a topic
that carries event time never deletes by age. By default a broker also refuses timestamps more than
an hour ahead of its clock. Our topics accept any; the pipeline's `max-future` says what is too far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.contracts.policies import AnyOperator, FilterPolicy, ReorderPolicy, SamplePolicy

TOPIC_CHARACTERS_MAX = 249
"""Kafka's own limit."""
FOREVER_MS = -1
DECISIONS_RETENTION_MS = 7 * 86_400_000
TOMBSTONES_KEPT_MS = 86_400_000
"""How long compaction keeps a changelog's tombstones for instances that have not read them."""
PROGRESS_SEGMENT_MS = 3_600_000
"""Compaction skips the segment being written: it would grow for a week if it were not closed."""
PURGED_SEGMENT_BYTES = 64 << 20
"""Purging and compaction leave the segment being written as it is. By itself it takes a gibibyte of
each partition, whatever little of that is state."""
_TIMESTAMP_MS_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic that headrace creates if it is missing."""

    name: str
    role: Literal["cleaned", "late", "dead", "changelog", "repartition", "progress", "decisions"]
    cleanup_policy: Literal["delete", "compact", "compact,delete"]
    retention_ms: int
    """How long records stay; FOREVER_MS where none is deleted by age."""
    why: str
    """One sentence for people."""
    broker_time: bool = False
    """Timestamps are the broker's, not the records' event time."""

    def settings(self) -> dict[str, str]:
        """Return the topic's settings, by Kafka's names."""
        settings = {
            "cleanup.policy": self.cleanup_policy,
            # A broker that compresses every batch again takes time for it, and gains us nothing.
            "compression.type": "producer",
            "message.timestamp.type": "LogAppendTime" if self.broker_time else "CreateTime",
        }
        if "delete" in self.cleanup_policy:
            settings["retention.ms"] = str(self.retention_ms)
        if self.role == "progress":
            settings["segment.ms"] = str(PROGRESS_SEGMENT_MS)
        if self.role in ("changelog", "repartition"):
            settings["segment.bytes"] = str(PURGED_SEGMENT_BYTES)
        if self.role == "changelog":
            settings["delete.retention.ms"] = str(TOMBSTONES_KEPT_MS)
        if not self.broker_time:
            settings["message.timestamp.after.max.ms"] = str(_TIMESTAMP_MS_MAX)
        return settings


def late_topic_name(cleaned: str) -> str:
    """Return the late topic's name, unless the pipeline names another."""
    return f"{cleaned}.late"


def dead_topic_name(cleaned: str) -> str:
    """Return the dead-letter topic's name, unless the pipeline names another."""
    return f"{cleaned}.dead"


def cleaned_topic(name: str) -> TopicSpec:
    """Return the topic that the pipeline writes."""
    why = "event time may be old, so age deletes nothing; delete by size, or by hand"
    return TopicSpec(name, "cleaned", "delete", FOREVER_MS, why)


def late_topic(name: str) -> TopicSpec:
    """Return the topic of records that came too late, as they came."""
    why = "late records are old by their timestamps, so age deletes nothing"
    return TopicSpec(name, "late", "delete", FOREVER_MS, why)


def dead_topic(name: str) -> TopicSpec:
    """Return the topic of dead records, as they came, with the cause in headers."""
    why = "dead records keep their timestamps, so age deletes nothing"
    return TopicSpec(name, "dead", "delete", FOREVER_MS, why)


def progress_topic(cleaned: str) -> TopicSpec:
    """Return the topic that says how far each partition of the cleaned topic is."""
    why = "the lowest timestamp that can still come in time: a row a partition and milestone"
    return TopicSpec(f"{cleaned}.progress", "progress", "compact", FOREVER_MS, why)


def decisions_topic(cleaned: str) -> TopicSpec:
    """Return the topic of verdicts on each record, for users who switch it on."""
    why = "kept for a week from when it was written"
    name = f"{cleaned}.decisions"
    return TopicSpec(name, "decisions", "delete", DECISIONS_RETENTION_MS, why, broker_time=True)


def changelog_topic(pipeline: str, hop: str) -> TopicSpec:
    """Return the topic of all rows of one hop's stores, from which the stores are restored."""
    why = "the newest row of each key is the state; age deletes none of it"
    # Neither age nor size deletes any record: but without `delete` no broker would let us purge it.
    name = f"{pipeline}-{hop}-changelog"
    return TopicSpec(name, "changelog", "compact,delete", FOREVER_MS, why)


def repartition_topic(pipeline: str, operator: str) -> TopicSpec:
    """Return the topic that holds the records again, spread by id."""
    why = "records of one id meet in one partition; event time may be old, so age deletes none"
    name = f"{pipeline}-{operator}-repartition"
    return TopicSpec(name, "repartition", "delete", FOREVER_MS, why)


def keeps_state(policy: AnyOperator) -> bool:
    """Return whether an operator remembers anything."""
    if isinstance(policy, ReorderPolicy):
        return policy.grace_ms > 0
    return not isinstance(policy, FilterPolicy | SamplePolicy)
