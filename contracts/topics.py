"""Every topic of a pipeline: its name, and the settings without which it would lose records.

Event time may be older than any retention, and a broker deletes by a record's timestamp, so a
topic that carries event time is never deleted by age. A broker also refuses timestamps more than
an hour ahead of its clock unless told otherwise; how far ahead is too far is the pipeline's
`max-future` to say.
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
"""How long compaction leaves a changelog's tombstones for those who did not read them yet."""
PROGRESS_SEGMENT_MS = 3_600_000
"""Compaction leaves the segment alone that is written: without an end to it, a week of rows."""
_TIMESTAMP_MS_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic that headrace makes where it is missing."""

    name: str
    role: Literal["cleaned", "late", "dead", "changelog", "repartition", "progress", "decisions"]
    cleanup_policy: Literal["delete", "compact", "compact,delete"]
    retention_ms: int
    """How long records stay; FOREVER_MS where age deletes none."""
    why: str
    """One sentence for people."""
    broker_time: bool = False
    """Timestamps are the broker's, not the records' event time."""

    def settings(self) -> dict[str, str]:
        """What Kafka is asked for, in its own words."""
        settings = {
            "cleanup.policy": self.cleanup_policy,
            # A broker that packs everything anew takes time for it, and gains us nothing.
            "compression.type": "producer",
            "message.timestamp.type": "LogAppendTime" if self.broker_time else "CreateTime",
        }
        if "delete" in self.cleanup_policy:
            settings["retention.ms"] = str(self.retention_ms)
        if self.role == "progress":
            settings["segment.ms"] = str(PROGRESS_SEGMENT_MS)
        if self.role == "changelog":
            settings["delete.retention.ms"] = str(TOMBSTONES_KEPT_MS)
        if not self.broker_time:
            settings["message.timestamp.after.max.ms"] = str(_TIMESTAMP_MS_MAX)
        return settings


def late_topic_name(cleaned: str) -> str:
    """Where late records go if nobody says otherwise."""
    return f"{cleaned}.late"


def dead_topic_name(cleaned: str) -> str:
    """Where dead records go if nobody says otherwise."""
    return f"{cleaned}.dead"


def cleaned_topic(name: str) -> TopicSpec:
    """The topic that the pipeline writes."""
    why = "event time may be old, so age deletes nothing; delete by size, or by hand"
    return TopicSpec(name, "cleaned", "delete", FOREVER_MS, why)


def late_topic(name: str) -> TopicSpec:
    """Records that came too late, as they came."""
    why = "late records are old by their timestamps, so age deletes nothing"
    return TopicSpec(name, "late", "delete", FOREVER_MS, why)


def dead_topic(name: str) -> TopicSpec:
    """Records that cannot be read, as they came, with the cause in headers."""
    why = "dead records keep their timestamps, so age deletes nothing"
    return TopicSpec(name, "dead", "delete", FOREVER_MS, why)


def progress_topic(cleaned: str) -> TopicSpec:
    """How far each partition of the cleaned topic is."""
    why = "the lowest timestamp that can still come in time: a row a partition and milestone"
    return TopicSpec(f"{cleaned}.progress", "progress", "compact", FOREVER_MS, why)


def decisions_topic(cleaned: str) -> TopicSpec:
    """What became of each record, for those who ask to have it written out."""
    why = "kept for a week from when it was written"
    name = f"{cleaned}.decisions"
    return TopicSpec(name, "decisions", "delete", DECISIONS_RETENTION_MS, why, broker_time=True)


def changelog_topic(pipeline: str, hop: str) -> TopicSpec:
    """The rows of all stores of one hop, from which they are restored."""
    why = "the newest row of each key is the state; age deletes none of it"
    # Neither age nor size deletes any: but without `delete` no broker would let us purge it.
    name = f"{pipeline}-{hop}-changelog"
    return TopicSpec(name, "changelog", "compact,delete", FOREVER_MS, why)


def repartition_topic(pipeline: str, operator: str) -> TopicSpec:
    """The records again, spread by id."""
    why = "records of one id meet in one partition; event time may be old, so age deletes none"
    name = f"{pipeline}-{operator}-repartition"
    return TopicSpec(name, "repartition", "delete", FOREVER_MS, why)


def keeps_state(policy: AnyOperator) -> bool:
    """Whether an operator remembers anything."""
    if isinstance(policy, ReorderPolicy):
        return policy.grace_ms > 0
    return not isinstance(policy, FilterPolicy | SamplePolicy)
