"""Types of Kafka's messages since they are flexible (KIP-482), as all requests of ours use them.

A text and an array are compact, and behind the fields of each structure stand tags, of which we
send none.
"""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, TaggedFields

NAME = CompactString("utf-8")
TAGS = ("tags", TaggedFields)
NO_TAGS: dict[int, bytes] = {}


def by_partition(*fields: tuple[str, Any]) -> CompactArray:
    """Topics, and what is said about each of their partitions."""
    partitions = CompactArray(("partition_index", Int32), ("error_code", Int16), *fields, TAGS)
    return CompactArray(("name", NAME), ("partitions", partitions), TAGS)
