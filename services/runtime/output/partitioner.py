"""The partition of an id: the one to which Kafka's own clients lead a key."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF
_LENGTHS_MAX = 1_000


class _Words(dict[int, Callable[[bytes], tuple[int, ...]]]):
    """Maps a length to what reads the whole words of so many bytes."""

    def __missing__(self, length: int) -> Callable[[bytes], tuple[int, ...]]:
        if len(self) >= _LENGTHS_MAX:
            self.clear()
        self[length] = Struct(f"<{length // 4}I").unpack_from
        return self[length]


_words = _Words()


def murmur2(data: bytes) -> int:
    """Hash bytes as Kafka does, by words: several times as fast as aiokafka's, which goes by bytes.

    It is without its sign, as the clients take it before they divide by the number of partitions.
    """
    length = len(data)
    hashed = _SEED ^ length
    for word in _words[length](data):
        mixed = word * _FACTOR & _WORD
        hashed = (hashed * _FACTOR ^ (mixed ^ mixed >> 24) * _FACTOR) & _WORD
    if rest := length & 3:
        hashed = (hashed ^ int.from_bytes(data[-rest:], "little")) * _FACTOR & _WORD
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _WORD
    return (hashed ^ hashed >> 15) & 0x7FFFFFFF
