"""The demo's pipeline and its stream: clicks as a careless producer sends them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from headrace.contracts.record import Record

TOPIC = "clicks.raw"
CLEANED = "clicks.cleaned"
PIPELINE = "demo"
PIPELINE_TEXT = f"""\
pipeline: {PIPELINE}
source: {{topic: {TOPIC}}}
operators:
  - reorder: {{grace: 3s, late: topic}}
  - deduplicate: {{by: key+id, id: value.event_id, interval: 1m}}
  - aggregate: {{function: count, window: {{kind: tumbling, size: 10s, grace: 0s}}}}
  - suppress: {{until: window-closes}}
sink: {{topic: {CLEANED}}}
"""
OPERATORS = ("reorder", "deduplicate", "aggregate")
"""Those that decide about clicks; what suppress sees are counts."""
START_MS = 1_700_000_000_000
USERS = ("ada", "bob", "eve")
CLICKS = 40
SEED = 7


def clicks(random: Random) -> Iterator[Record]:
    """Clicks of three users, one a second: some come twice, some late, one is not JSON."""
    sent: list[tuple[bytes, bytes, int]] = []
    for number in range(CLICKS):
        key = random.choice(USERS).encode()
        timestamp_ms = START_MS + number * 1_000
        value = b'{"event_id": "e%d"}' % number
        (mishap,) = random.choices(("none", "twice", "disorder", "late"), (58, 15, 20, 7))
        if mishap == "twice" and sent:
            key, value, timestamp_ms = random.choice(sent[-5:])
        elif mishap == "disorder":
            timestamp_ms -= random.randrange(500, 3_000)
        elif mishap == "late":
            timestamp_ms -= random.randrange(6_000, 9_000)
        if number == CLICKS // 3:
            value = b"not json"
        sent.append((key, value, timestamp_ms))
        yield Record(key, value, max(timestamp_ms, START_MS), (), TOPIC, 0, number)
    yield Record(b"ada", b'{"event_id": "last"}', START_MS + 60_000, (), TOPIC, 0, CLICKS)
