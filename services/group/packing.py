"""Numbers, texts and lists as bytes, big-endian, in the two dialects that a group speaks.

Kafka's own protocol writes a text with a signed length of 2 bytes; what Kafka Streams puts inside
it writes texts as Java's `writeUTF` does, with an unsigned one. For names that Kafka allows, and
for hosts, both are UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import NoReturn, TypeVar

from headrace.contracts.errors import MemberForeign

Item = TypeVar("Item")
INT16, UINT16, INT32, INT64 = Struct(">h"), Struct(">H"), Struct(">i"), Struct(">q")
_PAIR = Struct(">ii")
_NULL = -1


def pack_string(text: str | None) -> bytes:
    """Kafka's STRING, or NULLABLE_STRING."""
    return INT16.pack(_NULL) if text is None else _pack_text(INT16, text)


def pack_utf(text: str) -> bytes:
    """Java's `writeUTF`."""
    return _pack_text(UINT16, text)


def _pack_text(length: Struct, text: str) -> bytes:
    raw = text.encode()
    return length.pack(len(raw)) + raw


def pack_bytes(raw: bytes | None) -> bytes:
    """Kafka's BYTES, or NULLABLE_BYTES."""
    return INT32.pack(_NULL) if raw is None else INT32.pack(len(raw)) + raw


def pack_array(items: Iterable[bytes]) -> bytes:
    """A list of what is packed already."""
    packed = list(items)
    return INT32.pack(len(packed)) + b"".join(packed)


class Reader:
    """Reads from the front of bytes that somebody else wrote, and believes nothing."""

    def __init__(self, raw: bytes, what: str) -> None:
        """`what` names the bytes, and who sent them, in an error."""
        self._raw = raw
        self._what = what
        self._at = 0

    def refuse(self, problem: str) -> NoReturn:
        """These bytes cannot be what they should."""
        message = (
            f"{self._what} cannot be read: {problem}, up to byte {self._at} of {len(self._raw)};"
            " another program is in the group of this pipeline: stop it, or give it a group of"
            " its own"
        )
        raise MemberForeign(message)

    def take(self, count: int) -> bytes:
        """So many bytes."""
        if count < 0:
            self.refuse(f"a length is {count}")
        end = self._at + count
        if end > len(self._raw):
            self.refuse(f"it ends where {count} bytes should follow")
        taken = self._raw[self._at : end]
        self._at = end
        return taken

    def number(self, kind: Struct) -> int:
        """A number."""
        value: int = kind.unpack(self.take(kind.size))[0]
        return value

    def natural(self, kind: Struct, what: str) -> int:
        """A number that is never below zero."""
        value = self.number(kind)
        if value < 0:
            self.refuse(f"{what} is {value}")
        return value

    def string(self) -> str | None:
        """Kafka's NULLABLE_STRING."""
        length = self.number(INT16)
        return None if length == _NULL else self._text(length)

    def name(self) -> str:
        """Kafka's STRING."""
        return self._text(self.number(INT16))

    def utf(self) -> str:
        """What Java's `writeUTF` wrote."""
        return self._text(self.number(UINT16))

    def _text(self, length: int) -> str:
        raw = self.take(length)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.refuse("a text is not UTF-8")

    def blob(self) -> bytes | None:
        """Kafka's NULLABLE_BYTES."""
        length = self.number(INT32)
        return None if length == _NULL else self.take(length)

    def pairs(self, what: str) -> list[tuple[int, int]]:
        """A list of two numbers of 4 bytes each, none below zero."""
        count = self.natural(INT32, "the length of a list")
        pairs = list(_PAIR.iter_unpack(self.take(count * _PAIR.size)))
        if any(first < 0 or second < 0 for first, second in pairs):
            self.refuse(f"{what} is below zero")
        return pairs

    def array(self, read: Callable[[], Item]) -> list[Item]:
        """A list; a length that lies ends with the bytes, since no item has none."""
        return [read() for _ in range(self.natural(INT32, "the length of a list"))]
