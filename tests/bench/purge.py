"""`python -m tests.bench --purge`: what forgetting old ids costs, by the structure of the rows.

Every id is new, one a millisecond, and is forgotten after the interval. Three ways to keep them:
    time index    id -> time, and time, id -> nothing; old rows are found by range and deleted
    segments      segment, id -> time; a look-up asks two segments; a segment is dropped whole by
                  one range deletion
    nothing       id -> time, never forgotten: what looking up and writing alone cost
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import process_time

from headrace.services.operators.rows import pack_time
from headrace.services.state.rocks import RocksMemory, RocksStore

_RECORDS = 2_000_000
_INTERVAL_MS = 200_000
_BATCH_RECORDS = 1_000
_MEMORY_BYTES = 512 << 20
_LAST_RUN = 4
"""Only the last of so many parts is measured, when compactions run as they always will."""
Ids = list[tuple[bytes, int]]
Step = Callable[[RocksStore, Ids], None]


def main() -> None:
    """Measure each way, in turn."""
    for name, step in {"time index": time_index, "segments": segments, "nothing": nothing}.items():
        with tempfile.TemporaryDirectory(prefix="headrace-purge-") as folder:
            micros, state_bytes = run(step, Path(folder) / "state")
        print(f"{name:<12}{micros:8.2f} CPU-us a record{state_bytes / 2**20:9.0f} MiB on disk")


def run(step: Step, path: Path) -> tuple[float, int]:
    """CPU microseconds a record in the last part of the run, and the state's size at its end."""
    store = RocksStore(path, RocksMemory(_MEMORY_BYTES))
    ids = _ids()
    batches = _RECORDS // _BATCH_RECORDS
    measured_from = batches * (_LAST_RUN - 1) // _LAST_RUN
    seconds = 0.0
    for number in range(batches):
        batch = list(islice(ids, _BATCH_RECORDS))
        started = process_time()
        step(store, batch)
        seconds += process_time() - started if number >= measured_from else 0.0
    store.flush()
    state_bytes = sum(file.stat().st_size for file in path.glob("*.sst"))
    store.close()
    return seconds * 1e6 / ((batches - measured_from) * _BATCH_RECORDS), state_bytes


def time_index(store: RocksStore, ids: Ids) -> None:
    """A second row for each id tells when it is old."""
    store.get_many([b"\x01" + record_id for record_id, _ in ids])
    rows: dict[bytes, bytes | None] = {}
    for record_id, time_ms in ids:
        rows[b"\x01" + record_id] = pack_time(time_ms)
        rows[b"\x02" + pack_time(time_ms) + record_id] = b""
    # Behind what the last batch forgot: a scan from the beginning would walk over every row that
    # was ever deleted and not compacted away, and costs fifteen times as much.
    first, last = (pack_time(ids[at][1] - _INTERVAL_MS) for at in (0, -1))
    for row_key, _ in store.range(b"\x02" + first, b"\x02" + last + b"\xff"):
        rows[row_key] = None
        rows[b"\x01" + row_key[9:]] = None
    store.write([], rows)


def segments(store: RocksStore, ids: Ids) -> None:
    """Ids of one stretch of time stand together, and leave together."""
    newest = ids[-1][1] // _INTERVAL_MS
    for segment in (newest - 1, newest):
        prefix = b"\x01" + pack_time(segment)
        store.get_many([prefix + record_id for record_id, _ in ids])
    prefix = b"\x01" + pack_time(newest)
    rows: dict[bytes, bytes | None] = {prefix + id_: pack_time(time_ms) for id_, time_ms in ids}
    is_new_segment = ids[0][1] // _INTERVAL_MS < newest or ids[0][1] % _INTERVAL_MS == 0
    drops = [(b"\x01", b"\x01" + pack_time(newest - 1))] if is_new_segment else []
    store.write(drops, rows)


def nothing(store: RocksStore, ids: Ids) -> None:
    """Every id is kept for ever."""
    store.get_many([b"\x01" + record_id for record_id, _ in ids])
    store.write([], {b"\x01" + record_id: pack_time(time_ms) for record_id, time_ms in ids})


def _ids() -> Iterator[tuple[bytes, int]]:
    for number in range(_RECORDS):
        yield b"%016x" % (number * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF), number
