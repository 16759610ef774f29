"""A store on disk: RocksDB through rocksdict, one database a partition.

Memory is bounded for the whole process, not for each database: one `RocksMemory` holds the block
cache, indexes and blooms live in it, and the write buffers of all databases count against it.
The write-ahead log is on but not synced. A killed process loses nothing. A lost machine loses its
latest batches whole, and the changelog in Kafka has them.

rocksdict holds the interpreter while it opens and while it writes, and no heartbeat goes out in the
meantime. So RocksDB is told to refuse a write that would have to wait for flushes and compactions,
and this module waits instead. To open a database means to read its log, at 25 to 40 ms a MiB of
small rows. A database that was closed has no log. A killed process leaves one, which is read before
the instance joins the group (`runtime/standby/disk.py`).
"""

from __future__ import annotations

import re
import resource
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from headrace.contracts.errors import (
    HeadraceError,
    LimitTooLow,
    StateCorrupt,
    StateLocked,
    StateUnavailable,
)
from headrace.services.state.store import Stretch

MEMORY_BYTES = 512 << 20
FILES_OF_A_DATABASE = 16
"""Files that one database has open: log, lock, manifest, some tables; a large one has more."""
ASIDE = ".aside"
"""Ends the name of a database that was moved out of the way."""
_WRITE_BUFFERS_SHARE = 4
_WRITE_BUFFER_BYTES_MIN = 512 << 10
_WRITE_BUFFER_BYTES_MAX = 8 << 20
"""A log is as long, or twice as long while a buffer is being written to a file."""
_BLOOM_BITS_PER_KEY = 10
_MEMTABLE_BLOOM_SHARE = 0.02
"""A share of a write buffer, allocated at once: 10 bits a row if its rows are of 60 bytes."""
_READING_TRIES = 5
_IS_DATABASE = re.compile(r"CURRENT|IDENTITY|(MANIFEST|OPTIONS)-\d+|\d+\.(sst|log)")
_FILES = "Too many open files"
_STALLED = "Result incomplete: Write stall"
_STALLED_S, _STALLED_CHECKS = 0.005, 20
_LOCK = re.compile(r"^IO error: (lock hold by|While lock file)")
# A database names its own files; a missing one was lost, which counts as damage.
_MISSING_FILE = re.compile(r"No such file or directory.*/(MANIFEST-\d+|\d+\.sst)")


class RocksMemory:
    """The memory that all databases of a process share."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        """Keep blocks, indexes, blooms and write buffers together near `memory_bytes`."""
        self.memory_bytes = memory_bytes
        self.cache = Cache(memory_bytes)
        buffers_bytes = memory_bytes // _WRITE_BUFFERS_SHARE
        self.write_buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            buffers_bytes, allow_stall=False, cache=self.cache
        )
        self.write_buffer_bytes = min(buffers_bytes, _WRITE_BUFFER_BYTES_MAX)

    def share(self, memory_bytes: int, databases: int) -> None:
        """Use so much memory from now on, for so many databases that open from now on."""
        self.memory_bytes = memory_bytes
        self.cache.set_capacity(memory_bytes)
        buffers_bytes = memory_bytes // _WRITE_BUFFERS_SHARE
        self.write_buffers.set_buffer_size(buffers_bytes)
        # A buffer allocates an eighth of its size at once, and that counts.
        each_bytes = max(_WRITE_BUFFER_BYTES_MIN, 2 * buffers_bytes // databases)
        self.write_buffer_bytes = min(each_bytes, _WRITE_BUFFER_BYTES_MAX)

    def usage_bytes(self) -> int:
        """Return the memory in use now."""
        return self.cache.get_usage()

    def write_buffers_bytes(self) -> int:
        """Return the part of it that write buffers take."""
        return self.write_buffers.get_usage()


class RocksStore:
    """The rows of one partition."""

    def __init__(self, path: Path, memory: RocksMemory, read_at: Path | None = None) -> None:
        """Open or create the database in the folder `path`, or read it at a copy of that folder."""
        self._path = path
        self._has_failed = False
        with _told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            options = _options(memory)
            # rocksdict opens an existing database with RocksDB's own options (a cache of 8 MiB for
            # itself, no use of blooms) unless its column family is named.
            self._database = Rdict(
                str(read_at or path),
                options,
                {"default": options},
                AccessType.read_only() if read_at else AccessType.read_write(),
            )

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the row of each key, None where there is none."""
        if not keys:
            return []
        with _told(self._path):
            rows: list[bytes | None] = self._database.get(keys)  # type: ignore[arg-type, assignment]
        return rows

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over rows with start <= key < end, in order, as of the first that is taken."""
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        with _told(self._path):
            iterator = self._database.iter(options)
            try:
                iterator.seek(start)
                while iterator.valid():
                    yield iterator.key(), iterator.value()
                    iterator.next()
                # A damaged block ends the iteration like the last row; only the status tells.
                iterator.status()
            finally:
                # A traceback that keeps the iterator would keep the database's lock, closed or not.
                del iterator

    def write(self, drops: Sequence[Stretch], *rows: Mapping[bytes, bytes | None]) -> None:
        """Drop stretches, then set rows (None deletes): all of it, or nothing."""
        self._has_failed = True
        batch = _batch_of(drops, rows)
        with _told(self._path):
            while not self._is_written(batch):
                self._wait_for_room()
                batch = _batch_of(drops, rows)
            if drops:
                # A range deletion in a write buffer triples the price of every look-up.
                self._database.flush(wait=False)
        self._has_failed = False

    def _is_written(self, batch: WriteBatch) -> bool:
        """Write, unless that would have to wait; return whether it did."""
        options = WriteOptions()
        options.no_slowdown = True
        try:
            self._database.write(batch, options)
        except Exception as problem:  # rocksdict raises nothing narrower
            if str(problem) == _STALLED:
                return False
            raise
        return True

    def _wait_for_room(self) -> None:
        """Wait as RocksDB would, and let other threads run; the next write raises any error."""
        for _ in range(_STALLED_CHECKS):
            time.sleep(_STALLED_S)
            if not self._database.property_int_value("rocksdb.is-write-stopped"):
                return

    def flush(self) -> None:
        """Move write buffers to files, so that their size can be measured."""
        with _told(self._path):
            self._database.flush()

    def is_compacting(self) -> bool:
        """Return whether files wait to be merged, or are being merged now."""
        names = ("rocksdb.compaction-pending", "rocksdb.num-running-compactions")
        return any(self._database.property_int_value(name) for name in names)

    def close(self) -> None:
        """Release files and locks; the rows in the log move to a file."""
        try:
            self._database.close()
        except Exception as problem:  # rocksdict raises nothing narrower
            # After a failed write it raises the same error once more, without the reason.
            if not self._has_failed:
                raise _translated(self._path, str(problem)) from problem


def delete(path: Path) -> None:
    """Delete a database that is closed."""
    with _told(path):
        shutil.rmtree(path)


def put_aside(path: Path) -> Path:
    """Move a database that is closed out of the way, in place of one that was moved before."""
    aside = path.with_name(f"{path.name}{ASIDE}")
    with _told(path):
        if aside.exists():
            shutil.rmtree(aside)
        path.rename(aside)
    return aside


def _batch_of(drops: Sequence[Stretch], rows: Sequence[Mapping[bytes, bytes | None]]) -> WriteBatch:
    """Make a write batch. RocksDB uses up one that it refuses, so each try makes its own."""
    batch = WriteBatch(raw_mode=True)
    for start, end in drops:
        batch.delete_range(start, end)
    put = batch.put
    for some in rows:
        for key, row in some.items():
            if row is None:
                batch.delete(key)
            else:
                put(key, row)
    return batch


@contextmanager
def reading(path: Path, memory: RocksMemory) -> Iterator[RocksStore]:
    """Open a database as of its last commit, even if a process holds it; leave its folder as it is.

    rocksdict writes into any folder that it opens, so this opens a folder of links to the files.
    """
    with TemporaryDirectory(prefix="headrace-") as folder:
        store = _opened_by_links(path, Path(folder), memory)
        try:
            yield store
        finally:
            store.close()


def _opened_by_links(path: Path, folder: Path, memory: RocksMemory) -> RocksStore:
    attempt = 0
    while True:
        attempt += 1
        links = folder / str(attempt)
        try:
            with _told(path):
                links.mkdir()
                for file in path.resolve().iterdir():
                    if _IS_DATABASE.fullmatch(file.name):
                        (links / file.name).symlink_to(file)
            return RocksStore(path, memory, read_at=links)
        except (StateCorrupt, StateUnavailable):
            # The process that writes it may have replaced a file in the meantime.
            if attempt == _READING_TRIES:
                raise


def _options(memory: RocksMemory) -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(memory.cache)
    blocks.set_bloom_filter(_BLOOM_BITS_PER_KEY, block_based=False)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    blocks.set_format_version(5)
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_manager(memory.write_buffers)
    options.set_write_buffer_size(memory.write_buffer_bytes)
    options.set_memtable_whole_key_filtering(True)
    options.set_memtable_prefix_bloom_ratio(_MEMTABLE_BLOOM_SHARE)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    return options


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Raise what is wrong with a database, and what to do; rocksdict has one exception for all."""
    try:
        yield
    except (DbClosedError, GeneratorExit):
        raise
    except Exception as problem:  # rocksdict raises nothing narrower
        raise _translated(path, str(problem)) from problem


def _translated(path: Path, problem: str) -> HeadraceError:
    if problem.startswith("Corruption") or _MISSING_FILE.search(problem):
        return StateCorrupt(
            f"the state in {path} is damaged ({problem});"
            " delete the folder, it is rebuilt from the changelog"
        )
    if _LOCK.search(problem):
        return StateLocked(
            f"the state in {path} is held by another process;"
            " stop it, or give this one another state folder"
        )
    if _FILES in problem:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return LimitTooLow(
            f"the state in {path} cannot be read or written: this process may not open more than"
            f" {allowed} files; raise its limit (`ulimit -n`, LimitNOFILE= of systemd, --ulimit"
            " nofile= of Docker), or share its partitions among more instances"
        )
    return StateUnavailable(
        f"the state in {path} cannot be read or written ({problem});"
        " check that the disk has room and the folder may be written to"
    )
