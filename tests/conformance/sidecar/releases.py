"""The order in which `reorder` let a join's stream go, shown by what the join makes of it.

A stream-table join with grace is a reorder and a join without grace behind it. The sidecar says in
which order records leave; when each leaves, the join's rule says. So the two are put together:
the table's records and what was released take their turns, go through a join without grace, and
must give what the vector has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.contracts.record import NO_TIME_MS, Record
from tests.conformance.compare import Run, compare
from tests.conformance.functions import is_whole
from tests.conformance.sidecar.groups import PLACE_HEADER, Share
from tests.conformance.vectors import Vector, record_of
from tests.conformance.versioned import BUILDERS, Topology


def disagreements(share: Share, cleaned: Sequence[Record]) -> Iterator[str]:
    """Every difference between a vector and what was released."""
    inputs = share.vector["input"]
    leaves = _leaves(share)
    released: dict[int, list[Record]] = {}
    earlier = -1
    for record in cleaned:
        place, plain = _plain(record)
        if place is None:
            yield f"left without the header {PLACE_HEADER} that it came with: {plain}"
            continue
        cause = leaves.pop(place, None)
        if plain != record_of(inputs[place])._replace(offset=None):
            yield f"input {place}: came in as {inputs[place]}, and left as {plain}"
        elif cause is None:
            yield f"input {place} left, and should wait, or has left before"
        elif cause < earlier:
            yield f"input {place} left behind what input {earlier} lets go, and leaves at {cause}"
        else:
            released.setdefault(cause, []).append(plain)
            earlier = cause
    if leaves:
        yield f"never left: inputs {sorted(leaves)}"
    yield from _joined(share.vector, released)


def _leaves(share: Share) -> dict[int, int]:
    """At which input each input leaves that can wait; those that wait to the end left out."""
    grace_ms = share.vector["config"]["grace_ms"]
    leaves: dict[int, int] = {}
    waiting: dict[int, int] = {}
    time_ms = NO_TIME_MS
    for place in share.places:
        record = record_of(share.vector["input"][place])
        if not is_whole(record):
            continue
        if record.timestamp_ms < time_ms - grace_ms:
            leaves[place] = place
            continue
        time_ms = max(time_ms, record.timestamp_ms)
        waiting[place] = record.timestamp_ms
        due = [other for other, at_ms in waiting.items() if at_ms <= time_ms - grace_ms]
        for other in due:
            leaves[other] = place
            del waiting[other]
    return leaves


def _plain(record: Record) -> tuple[int | None, Record]:
    """Which input a cleaned record is, and the record without what was added to it."""
    headers = tuple(header for header in record.headers if header[0] != PLACE_HEADER)
    told = dict(record.headers).get(PLACE_HEADER)
    plain = record._replace(headers=headers, topic="stream", partition=0, offset=None)
    return None if told is None else int(told), plain


def _joined(vector: Vector, released: dict[int, list[Record]]) -> list[str]:
    """Yield the differences behind the join; a record that never waits goes to it as it comes."""
    config = vector["config"] | {"grace_ms": None}
    topology = Topology(config)
    BUILDERS["stream_table_join"](topology, config)
    inputs, causes = [], []
    for place, entry in enumerate(vector["input"]):
        if "topic" not in entry:
            continue
        waits = entry["topic"] == "stream" and is_whole(record_of(entry))
        turn = [_entry(record) for record in released.get(place, [])] if waits else [entry]
        inputs += turn
        causes += [place] * len(turn)
    topology.process(inputs, 0)
    outputs = [
        output | {"after_input": causes[output["after_input"]]} for output in topology.run.outputs
    ]
    return compare(
        {"input": vector["input"], "output": vector["output"]}, Run(outputs=outputs), len(inputs)
    )


def _entry(record: Record) -> Vector:
    """A record as a vector writes it."""
    return {
        "topic": record.topic,
        "key": None if record.key is None else record.key.decode(),
        "value": None if record.value is None else record.value.decode(),
        "ts": record.timestamp_ms,
        "offset": record.offset,
        "headers": {
            name: None if value is None else value.decode() for name, value in record.headers
        },
    }
