"""`count-alerts`: final counts of windows, outside of the limits that their key had then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from struct import Struct

import numpy as np

from headrace.contracts.record import Headers
from headrace.contracts.window import WindowBounds, window_header, windowed_key
from tests.bench.spark.cleaned import (
    LAST_MS,
    Filled,
    Records,
    last_keys,
    records_of,
    times_of,
    write,
)
from tests.bench.spark.jobs.rows import Row, digest_of, judge_each, met_by
from tests.bench.spark.topics import SPAN_MS, Size

JOB = "count-alerts"
WINDOW_MS = SPAN_MS // 100
_LIMITS_A_KEY = 5
_TOMBSTONES = 0.05
_COUNT_MAX = 100
_count = Struct(">q")
_start = Struct(">q")


def fill(servers: str, counts: int) -> Filled:
    """Make the topics, and write everything as sidecars do."""
    size = Size(counts, counts // 20)
    keys = size.versions // _LIMITS_A_KEY
    random = np.random.default_rng(1)
    table, stream = limits_of(random, size.versions, keys), counts_of(random, size.facts, keys)
    written = write(
        servers, JOB, size, {"limits": table, "counts": stream}, {"counts": _headers_of}
    )
    return Filled(JOB, size, *written, digest_of(alerts(table, stream)), judge_each)


def alerts(limits: Records, counts: Records) -> Iterator[tuple[bytes, Row]]:
    """Yield the counts outside of their limits."""
    for at, key, limit in met_by(counts, limits, lambda windowed: _plain(windowed)[0]):
        _, start_ms = _plain(counts.keys[at])
        (count,) = _count.unpack(counts.values[at] or b"")
        said = json.loads(limit)
        least, most = said["least"], said["most"]
        if (least is not None and count < least) or (most is not None and count > most):
            window = {"window_start_ms": start_ms, "window_end_ms": start_ms + WINDOW_MS}
            yield key, {"key": key.decode(), **window, "count": count, **said}


def limits_of(random: np.random.Generator, count: int, keys: int) -> Records:
    """Draw limits that change; some have one side alone, and some go."""
    gone = random.random(count) < _TOMBSTONES
    values = [
        None if is_gone else json.dumps(_limit(number)).encode()
        for number, is_gone in enumerate(gone.tolist())
    ]
    of_keys = [b"k%07d" % key for key in random.integers(0, keys, count).tolist()]
    return records_of(of_keys, values, times_of(random, count))


def counts_of(random: np.random.Generator, count: int, keys: int) -> Records:
    """Draw the final counts of all keys in turn, each in the window of its time."""
    times_ms = times_of(random, count, odd=True)
    # Where a grace goes by the counts alone, these let the others leave; they have no limits.
    last = last_keys()
    times_ms += [LAST_MS] * len(last)
    homes = [*(b"k%07d" % (number % keys) for number in range(count)), *last]
    numbers = [*random.integers(0, _COUNT_MAX, count).tolist(), *[0] * len(last)]
    of_keys = [windowed_key(key, _window(ms)) for key, ms in zip(homes, times_ms, strict=True)]
    return records_of(of_keys, [*map(_count.pack, numbers)], times_ms, homes)


def _limit(number: int) -> Row:
    least = None if number % 7 == 0 else number % 20
    most = None if number % 11 == 0 else _COUNT_MAX - number % 25
    return {"least": least, "most": most}


def _window(at_ms: int) -> WindowBounds:
    start_ms = at_ms - at_ms % WINDOW_MS
    return WindowBounds("tumbling", start_ms, start_ms + WINDOW_MS)


def _plain(windowed: bytes) -> tuple[bytes, int]:
    """Return the key that was counted, and the start of its window."""
    return windowed[: -_start.size], _start.unpack(windowed[-_start.size :])[0]


def _headers_of(windowed: bytes) -> Headers:
    return (window_header(_window(_plain(windowed)[1])),)
