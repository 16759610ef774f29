"""Deduplicates by key: the table keeps when a key was forwarded last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faust

from tests.bench.peers.settings import milliseconds, setting

_INTERVAL_MS = milliseconds("INTERVAL_MS")
_PARTITIONS = int(setting("PARTITIONS"))
_RAW = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}

app = faust.App(
    setting("GROUP"),
    broker=f"kafka://{setting('BOOTSTRAP_SERVERS')}",
    store="rocksdb://?driver=rocksdict",
    datadir=Path(setting("STATE_FOLDER")),
    processing_guarantee=setting("GUARANTEE").replace("-", "_"),
    broker_commit_interval=milliseconds("COMMIT_INTERVAL_MS") / 1000,
    topic_partitions=_PARTITIONS,
    topic_replication_factor=1,
    # The leader's own topics would only be more to wait for.
    topic_disable_leader=True,
)
source = app.topic(setting("SOURCE"), **_RAW)
sink = app.topic(setting("SINK"), partitions=_PARTITIONS, **_RAW)
# The changelog carries event time, which is older than any retention.
forwarded_ms = app.Table(
    "forwarded", key_type=bytes, value_type=int, extra_topic_configs={"retention.ms": "-1"}
)
stream_time_ms: dict[int, int] = {}


@app.agent(source)  # type: ignore[untyped-decorator]
async def deduplicate(stream: Any) -> None:
    """Forward the first record of a key, drop the others within the interval."""
    async for event in stream.events():
        message = event.message
        timestamp_ms = round(message.timestamp * 1000)
        latest_ms = max(stream_time_ms.get(message.partition, -1), timestamp_ms)
        stream_time_ms[message.partition] = latest_ms
        saved_ms = forwarded_ms.get(event.key)
        known = saved_ms is not None and saved_ms >= latest_ms - _INTERVAL_MS
        if not known or abs(saved_ms - timestamp_ms) > _INTERVAL_MS:
            forwarded_ms[event.key] = timestamp_ms
            await sink.send(
                key=event.key,
                value=event.value,
                timestamp=message.timestamp,
                partition=message.partition,
            )


app.main()
