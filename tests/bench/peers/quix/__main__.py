"""One operator of Quix Streams between two topics, until it is told to stop."""

from __future__ import annotations

import struct
from typing import Any

from quixstreams import Application, State, message_context
from quixstreams.dataframe.windows import Count, Max
from quixstreams.models import SerializationContext, Serializer

from tests.bench.peers.settings import milliseconds, setting

_long = struct.Struct(">q")
_stream_time_ms: dict[int, int] = {}


def main() -> None:
    """Run the operator that the race names."""
    app = Application(
        broker_address=setting("BOOTSTRAP_SERVERS"),
        consumer_group=setting("GROUP"),
        auto_offset_reset="earliest",
        state_dir=setting("STATE_FOLDER"),
        commit_interval=milliseconds("COMMIT_INTERVAL_MS") / 1000,
        processing_guarantee=setting("GUARANTEE"),
        loglevel="WARNING",
    )
    source = app.topic(setting("SOURCE"), key_deserializer="bytes", value_deserializer="bytes")
    operators = {"deduplicate": _deduplicate, "windowed-count": _windowed_count}
    operators[setting("OPERATOR")](app, app.dataframe(source))
    app.run()


def _deduplicate(app: Application, frame: Any) -> None:
    """A timestamp for each key, and none is ever forgotten, which costs less than purging."""
    interval_ms = milliseconds("INTERVAL_MS")

    def is_first(_value: bytes, _key: bytes, time_ms: int, _headers: Any, state: State) -> bool:
        partition = message_context().partition
        latest_ms = max(_stream_time_ms.get(partition, -1), time_ms)
        _stream_time_ms[partition] = latest_ms
        saved_ms = state.get("forwarded")
        known = saved_ms is not None and saved_ms >= latest_ms - interval_ms
        if known and abs(saved_ms - time_ms) <= interval_ms:
            return False
        state.set("forwarded", time_ms)
        return True

    sink = app.topic(setting("SINK"), key_serializer="bytes", value_serializer="bytes")
    frame.filter(is_first, metadata=True, stateful=True).to_topic(sink)


def _windowed_count(app: Application, frame: Any) -> None:
    """Final results, in the bytes that everybody else writes."""
    sink = app.topic(setting("SINK"), key_serializer="bytes", value_serializer=_Count())
    (
        frame.apply(lambda _value, _key, time_ms, _headers: time_ms, metadata=True)
        .tumbling_window(milliseconds("WINDOW_MS"), grace_ms=milliseconds("WINDOW_GRACE_MS"))
        .agg(count=Count(), latest_ms=Max())
        .final(closing_strategy="partition")
        .apply(lambda window, key, _time_ms, _headers: {**window, "key": key}, metadata=True)
        .set_timestamp(lambda window, _key, _time_ms, _headers: window["latest_ms"])
        .to_topic(sink, key=lambda window: window["key"] + _long.pack(window["start"]))
    )


class _Count(Serializer):  # type: ignore[misc]
    """A window's count, as everybody else writes it."""

    def __call__(self, value: dict[str, Any], ctx: SerializationContext) -> bytes:
        """The bytes that go into the topic, whichever it is."""
        del ctx
        return _long.pack(value["count"])


main()
