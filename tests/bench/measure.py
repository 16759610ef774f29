"""Measures one operator, and the bare store with the operator's own calls, from the same state."""

from __future__ import annotations

import gc
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from time import process_time, sleep
from typing import NamedTuple

from headrace.contracts.policies import AnyOperator
from headrace.contracts.record import Record
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch
from headrace.services.state.overlay import Overlay
from headrace.services.state.rocks import RocksMemory, RocksStore
from headrace.services.state.store import Store, Stretch
from tests.bench.operators import Workload, records

BATCH_RECORDS = 1_000
_FILL_COMMIT_BATCHES = 10
_PIPELINE = "bench"
# The service sets this too: most objects of a batch live as long as the batch.
_GC_THRESHOLDS = (200_000, 50, 100)


class Figures(NamedTuple):
    """The measurement of one operator with one number of ids."""

    operator: str
    ids: int
    records: int
    operator_seconds: float
    store_seconds: float
    fill_records_per_second: float
    state_bytes: int
    cache_bytes: int
    resident_bytes: int

    @property
    def records_per_second(self) -> float:
        """Records per CPU-second through the operator and its store."""
        return self.records / self.operator_seconds

    @property
    def ratio(self) -> float:
        """The bare store's CPU time over the operator's."""
        return self.store_seconds / self.operator_seconds


Call = Callable[[Store], object]


class Recorder:
    """A store that remembers the calls that were made."""

    def __init__(self, store: Store) -> None:
        """Pass everything on to `store`."""
        self._store = store
        self.calls: list[Call] = []

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """As the store."""
        self.calls.append(lambda store: store.get_many(keys))
        return self._store.get_many(keys)

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """As the store; as many rows as were asked for."""
        taken = 0
        try:
            for row in self._store.range(start, end):
                taken += 1
                yield row
        finally:
            self.calls.append(lambda store: list(islice(store.range(start, end), taken)))

    def write(self, drops: Sequence[Stretch], *rows: Mapping[bytes, bytes | None]) -> None:
        """As the store."""
        self.calls.append(lambda store: store.write(drops, *rows))
        self._store.write(drops, *rows)

    def close(self) -> None:
        """As the store."""
        self._store.close()


def measure(
    name: str, workload: Workload, ids: int, record_count: int, folder: Path, memory_bytes: int
) -> Figures:
    """Fill the state, then run the same records through the operator and through the bare store."""
    gc.set_threshold(*_GC_THRESHOLDS)
    policy = workload.policy(ids)
    stream = records(workload, ids)
    fill_records_per_second = _fill(policy, stream, ids * 4 // 3, folder / "filled", memory_bytes)
    # The peak while the state was filled, before this process holds anything of its own.
    resident_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    state_bytes = sum(file.stat().st_size for file in (folder / "filled").iterdir())
    batches = [list(islice(stream, BATCH_RECORDS)) for _ in range(record_count // BATCH_RECORDS)]
    gc.freeze()

    memory = RocksMemory(memory_bytes)
    recorder = Recorder(_copy(folder, "recorded", memory))
    _run(policy, recorder, batches)
    recorder.close()
    store_seconds = operator_seconds = float("inf")
    # The better of two, in turn: whatever else the machine does only ever adds.
    for attempt in range(2):
        store = _copy(folder, f"bare{attempt}", memory)
        store_seconds = min(store_seconds, _replay(recorder.calls, store))
        store = _copy(folder, f"operator{attempt}", memory)
        operator_seconds = min(operator_seconds, _run(policy, store, batches))
        cache_bytes = memory.usage_bytes()
        store.close()
    return Figures(
        operator=name,
        ids=ids,
        records=record_count,
        operator_seconds=operator_seconds,
        store_seconds=store_seconds,
        fill_records_per_second=fill_records_per_second,
        state_bytes=state_bytes,
        cache_bytes=cache_bytes,
        resident_bytes=resident_bytes,
    )


def _fill(
    policy: AnyOperator, stream: Iterator[Record], count: int, path: Path, memory_bytes: int
) -> float:
    """Bring the state to its size; returns records per CPU-second, making them included."""
    store = RocksStore(path, RocksMemory(memory_bytes))
    overlay = Overlay(store, _PIPELINE)
    chain = Chain([policy], overlay.view)
    started = process_time()
    for number in range(count // BATCH_RECORDS):
        chain.process(Batch.of(list(islice(stream, BATCH_RECORDS))))
        if number % _FILL_COMMIT_BATCHES == 0:
            chain.save()
            overlay.commit({})
    chain.save()
    overlay.commit({})
    store.flush()
    seconds = process_time() - started
    while store.is_compacting():
        # The next measurement does not pay for merges that the filling left behind.
        sleep(0.1)
    store.close()
    return count / seconds


def _copy(folder: Path, name: str, memory: RocksMemory) -> RocksStore:
    for other in folder.iterdir():
        if other.name != "filled":
            shutil.rmtree(other)
    shutil.copytree(folder / "filled", folder / name)
    return RocksStore(folder / name, memory)


def _run(policy: AnyOperator, store: Store, batches: list[list[Record]]) -> float:
    """CPU seconds of the operator over the store, a commit a batch."""
    overlay = Overlay(store, _PIPELINE)
    chain = Chain([policy], overlay.view)
    started = process_time()
    for batch in batches:
        chain.process(Batch.of(batch))
        chain.save()
        overlay.commit({})
    seconds = process_time() - started
    if imbalance := chain.imbalance():
        message = f"records were lost or invented: {imbalance}"
        raise AssertionError(message)
    return seconds


def _replay(calls: list[Call], store: Store) -> float:
    """CPU seconds of the same calls with nothing between."""
    started = process_time()
    for call in calls:
        call(store)
    seconds = process_time() - started
    store.close()
    return seconds
