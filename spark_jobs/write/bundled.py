"""Results that came in bundles: pack them in their task, and aim them where they are written.

Spark would make a row of each result for Python to read again. A bundle is one row of Spark's, and
its bytes are an Arrow batch of the columns in `COLUMNS`. `Aim` does with a batch what `aimed` and
`KafkaSink` do with a frame.
"""

from __future__ import annotations

import json
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_intdigest

from headrace.contracts.correction import CORRECTED_HEADER
from headrace.contracts.topics import dead_topic_name
from headrace.spark_jobs.headers import encode_headers, joined_texts
from headrace.spark_jobs.shapes import BUNDLE, CORRECTED, DEAD, LATE, ORIGIN
from headrace.spark_jobs.versioned.spread import SEED
from headrace.spark_jobs.write.aim import ROWS
from headrace.spark_jobs.write.digest import ROW_HASH, Digest
from headrace.spark_jobs.write.transaction import NOTE, Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from headrace.spark_jobs.write.aim import Targets

COLUMNS = pa.schema(
    [
        ("verdict", pa.string()),
        ("reason", pa.string()),
        ("task", pa.int32()),
        ("sequence", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.string()),
        ("number", pa.int64()),
        ("added", pa.int64()),
    ]
)
"""The columns of results that a sink needs."""
AIMED_SCHEMA = (
    "target STRING, key BINARY, value BINARY, timestamp_ms BIGINT, topic STRING, partition INT,"
    f" offset BIGINT, headers STRING, {NOTE} STRING, {ROW_HASH} BIGINT"
)
"""The columns of a batch that `Aim` makes."""
BUNDLE_BYTES = 512 << 10
"""About so many make a bundle. Spark hands bundles to Python by their number, not by their size
(`session`); those of a megabyte cost Java's collector more than they save."""
_ROWS = pa.array(ROWS)
_PRIMES = [
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
]
"""The constants of XXH64."""


def packed(results: pa.Table) -> Iterator[bytes]:
    """Pack results in their order; a bundle has at least one."""
    for piece in pieces_of(results):
        yield piece.serialize().to_pybytes()


def pieces_of(results: pa.Table, schema: pa.Schema = COLUMNS) -> Iterator[pa.RecordBatch]:
    """Cut these columns of results in their order into pieces of about a bundle's size."""
    for batch in results.select(schema.names).cast(schema).combine_chunks().to_batches():
        yield from _cut(batch)


def serialized(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Serialize rows in pieces of about a bundle's size; there must be at least one row."""
    for piece in _cut(batch):
        yield piece.serialize().to_pybytes()


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    size = ceil(batch.num_rows / ceil(batch.nbytes / BUNDLE_BYTES))
    for first in range(0, batch.num_rows, size):
        yield batch.slice(first, size)


def in_bundles(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the results in each bundle."""
    for batch in batches:
        for bundle in batch.column(BUNDLE):
            yield pa.ipc.read_record_batch(bundle.as_buffer(), COLUMNS)


def are_rows(results: pa.RecordBatch) -> pa.BooleanArray:
    """Return which results are rows of the job."""
    return pc.is_in(results["verdict"], value_set=_ROWS)


class Aim(NamedTuple):
    """Aims the results of bundles."""

    targets: Targets

    def rows_of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield, for each bundle, the rows that a writer takes."""
        return self.all_aimed(in_bundles(batches))

    def all_aimed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield, for each batch of results, the rows that a writer takes."""
        for results in map(self.wanted, batches):
            if results.num_rows:
                yield self.aimed(results)

    def wanted(self, results: pa.RecordBatch) -> pa.RecordBatch:
        """Return the results that leave here: not those that are rows of a table."""
        if self.targets.rows is not None:
            return results
        return results.filter(pc.invert(are_rows(results)))

    def aimed(self, results: pa.RecordBatch) -> pa.RecordBatch:
        """Give results their target, and those without one a note."""
        verdicts = results["verdict"]
        dead = pc.binary_join_element_wise(results["topic"], dead_topic_name(""), "")
        target = pc.case_when(
            pc.make_struct(
                are_rows(results),
                pc.equal(verdicts, LATE),
                pc.equal(verdicts, DEAD),
            ),
            pa.scalar(self.targets.rows, pa.string()),
            pa.scalar(self.targets.late, pa.string()),
            dead,
        )
        columns = {
            "target": target,
            **{name: results[name] for name in ("key", "value", "timestamp_ms", *ORIGIN)},
            "headers": _marked_headers(results),
            NOTE: _notes(results, pc.is_null(target).to_numpy(zero_copy_only=False)),
            ROW_HASH: pa.array(row_hashes(target, results["key"], results["timestamp_ms"])),
        }
        return pa.RecordBatch.from_pydict(columns)


def _marked_headers(results: pa.RecordBatch) -> pa.Array:
    """Return the headers, with one more where a row corrects an earlier one."""
    corrects = pc.equal(results["verdict"], CORRECTED)
    if not corrects.true_count:
        return results["headers"]
    mark = encode_headers((CORRECTED_HEADER,))
    marked = [joined_texts(text, mark) for text in results["headers"].to_pylist()]
    return pc.if_else(corrects, pa.array(marked, pa.string()), results["headers"])


def _notes(results: pa.RecordBatch, are_notes: NDArray[np.bool_]) -> pa.Array:
    """Return the fields of results without a target as JSON, null for all others."""
    notes: list[str | None] = [None] * len(results)
    for place in np.flatnonzero(are_notes).tolist():
        verdict, reason, task, number, added = (
            results[name][place].as_py()
            for name in ("verdict", "reason", "task", "number", "added")
        )
        note = Note(verdict, reason, task, number, 1 if added is None else added)
        notes[place] = json.dumps(note._asdict())
    return pa.array(notes, pa.string())


def digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield, for each bundle, how many rows it has for a table, and the sum of their hashes."""
    for results in in_bundles(batches):
        rows = results.filter(are_rows(results))
        total = _total(rows["key"], pc.multiply(rows["timestamp_ms"], 1_000))
        yield pa.RecordBatch.from_pydict({"rows": [len(rows)], "total": [total]})


def digest_of_rows(rows: pa.RecordBatch) -> Digest:
    """Return the digest of the rows of a table in columns."""
    times_us = rows["timestamp"].cast(pa.int64())
    return Digest(rows.num_rows, _total(rows["key"].view(pa.binary()), times_us))


def _total(keys: pa.Array, times_us: pa.Array) -> int:
    """Return the sum of the hashes of rows; that of 64-bit numbers wraps around."""
    return int(_hashes(np.full(len(keys), SEED, np.uint64), keys, times_us).sum())


def row_hashes(targets: pa.Array, keys: pa.Array, times_ms: pa.Array) -> NDArray[np.int64]:
    """Return what `row_hash` makes of each row."""
    coded = targets.dictionary_encode()
    of_targets = [xxh64_intdigest(text.encode(), SEED) for text in coded.dictionary.to_pylist()]
    seeds = np.array([*of_targets, SEED], np.uint64)
    begun = seeds[coded.indices.fill_null(len(of_targets)).to_numpy()]
    return _hashes(begun, keys, times_ms)


def _hashes(begun: NDArray[np.uint64], keys: pa.Array, times: pa.Array) -> NDArray[np.int64]:
    """Hash keys and times as Spark does: the hash of a column begins with that of the last one."""
    hash_of = _hashed if keys.null_count else xxh64_intdigest
    hashes = np.fromiter(map(hash_of, keys.to_pylist(), begun.tolist()), np.uint64, len(keys))
    are_null = keys.is_null().to_numpy(zero_copy_only=False)
    hashes = _hashed_numbers(hashes, are_null.astype(np.uint64), size=4)
    have_time = times.is_valid().to_numpy(zero_copy_only=False)
    numbers = times.fill_null(0).to_numpy().view(np.uint64)
    found: NDArray[np.int64] = np.where(have_time, _hashed_numbers(hashes, numbers, size=8), hashes)
    return found.view(np.int64)


def _hashed(key: bytes | None, seed: int) -> int:
    return seed if key is None else xxh64_intdigest(key, seed)


def _hashed_numbers(
    seeds: NDArray[np.uint64], numbers: NDArray[np.uint64], *, size: int
) -> NDArray[np.uint64]:
    """Return XXH64 of each number of four or eight bytes."""
    one, two, three, four, five = _PRIMES
    mixed = seeds + five + np.uint64(size)
    if size == 4:  # noqa: PLR2004 (XXH64 takes four and eight bytes differently)
        mixed = _turned(mixed ^ (numbers * one), 23) * two + three
    else:
        mixed = _turned(mixed ^ (_turned(numbers * two, 31) * one), 27) * one + four
    mixed = (mixed ^ (mixed >> np.uint64(33))) * two
    mixed = (mixed ^ (mixed >> np.uint64(29))) * three
    found: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(32))
    return found


def _turned(numbers: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    found: NDArray[np.uint64] = (numbers << np.uint64(bits)) | (numbers >> np.uint64(64 - bits))
    return found
