"""The task of a key, computed as Spark computes it: `pmod(xxhash64(key), tasks)`.

Spark hashes a key in its own plan (`operators/frames.py`). State that is moved into other tasks has
keys and no plan, so this is the same hash once more: XXH64 with Spark's seed.
"""

from __future__ import annotations

from struct import Struct

TASKS_BY_KEY = "option:tasks:by-key"
"""The number in a task's header that says over how many tasks keys are spread."""
HOT_KEYS, LISTED = "hot-keys", "listed"
"""The words of the option that tells which keys are hot: their table's rows are in all tasks.

A state without it has none.
"""
REGROUPS = ":regroups"
"""Ends the name of an option of windows whose groups have other keys than their records.

Checkpoints of earlier versions lack it.
"""
MEETS_BY, KINDS = "meets_by", "kinds"
"""Options that tell by which column a look-up meets, and of which kinds are what windows fold.

Checkpoints of earlier versions lack them too.
"""
MEETS_AS = "meets_as"
"""The option that tells how the text of a column is written by which records meet."""
LEFT_COLUMNS, RIGHT_COLUMNS = "left_columns", "right_columns"
"""Options that tell which columns the records have that a join of two streams holds of each side.

The number is below zero if they are held as they were read, with all columns that there are.
Checkpoints of earlier versions lack them as well.
"""
_SEED = 42
_MASK = (1 << 64) - 1
_SIGN = 1 << 63
_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5
_stripe = Struct("<4Q")
_u64 = Struct("<Q")
_u32 = Struct("<I")


def task_of(key: bytes | None, partition: int, tasks: int) -> int:
    """Return the task of a record; one without a key goes by its partition."""
    return task_number(key, partition) % tasks


def task_number(key: bytes | None, partition: int) -> int:
    """Return the number whose remainder is the task of a record, however many tasks there are."""
    return partition if key is None else xxhash64(key)


def xxhash64(key: bytes) -> int:
    """Hash bytes as Spark's `xxhash64` of one binary column does; the answer has a sign."""
    size = len(key)
    place = size - size % _stripe.size
    total = _striped(key, place) if place else (_SEED + _P5) & _MASK
    total = (total + size) & _MASK
    while place + _u64.size <= size:
        total ^= _round(0, _u64.unpack_from(key, place)[0])
        total = (_rotated(total, 27) * _P1 + _P4) & _MASK
        place += _u64.size
    if place + _u32.size <= size:
        total ^= (_u32.unpack_from(key, place)[0] * _P1) & _MASK
        total = (_rotated(total, 23) * _P2 + _P3) & _MASK
        place += _u32.size
    for byte in key[place:]:
        total ^= (byte * _P5) & _MASK
        total = (_rotated(total, 11) * _P1) & _MASK
    total = ((total ^ (total >> 33)) * _P2) & _MASK
    total = ((total ^ (total >> 29)) * _P3) & _MASK
    total ^= total >> 32
    return (total ^ _SIGN) - _SIGN


def _striped(key: bytes, end: int) -> int:
    """Return the hash of all whole stripes of a long key, four lanes of eight bytes each."""
    lanes = [(_SEED + _P1 + _P2) & _MASK, (_SEED + _P2) & _MASK, _SEED, (_SEED - _P1) & _MASK]
    for words in _stripe.iter_unpack(memoryview(key)[:end]):
        lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
    turned = zip(lanes, (1, 7, 12, 18), strict=True)
    total = sum(_rotated(lane, bits) for lane, bits in turned) & _MASK
    for lane in lanes:
        total = ((total ^ _round(0, lane)) * _P1 + _P4) & _MASK
    return total


def _round(lane: int, word: int) -> int:
    return (_rotated((lane + word * _P2) & _MASK, 31) * _P1) & _MASK


def _rotated(number: int, bits: int) -> int:
    return ((number << bits) | (number >> (64 - bits))) & _MASK
