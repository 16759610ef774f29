"""The same run over memory and over RocksDB."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.contracts.record import Record
from headrace.services.state.memory import MemoryStore
from headrace.services.state.rocks import RocksMemory, RocksStore
from headrace.services.state.store import Store
from tests.properties.drive import Build, run
from tests.properties.strategies import Stop

_MEMORY = RocksMemory(8 << 20)


def assert_both_stores_agree(
    build: Build,
    records: Sequence[Record],
    plan: Sequence[Stop],
    olds: Sequence[bytes | None] | None = None,
) -> None:
    """Check that both stores give the same results and end with the same rows."""
    memory = MemoryStore()
    in_memory = run(build, records, plan, store=memory, olds=olds)
    with TemporaryDirectory() as folder:
        rocks = RocksStore(Path(folder) / "state", _MEMORY)
        on_disk = run(build, records, plan, store=rocks, olds=olds)
        rows = _rows_of(rocks)
        rocks.close()
    assert on_disk == in_memory
    assert rows == _rows_of(memory)


def _rows_of(store: Store) -> list[tuple[bytes, bytes]]:
    return list(store.range(b"", b"\xff"))
