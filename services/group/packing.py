"""Numbers, texts and lists as bytes, big-endian, in the two dialects that a group speaks.

Kafka's own protocol writes a text with a signed length of 2 bytes. The user data of Kafka Streams,
inside it, writes texts as Java's `writeUTF` does, with an unsigned length. For names that Kafka
allows, and for hosts, both are UTF-8.
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
    """Pack Kafka's STRING, or NULLABLE_STRING."""
    return INT16.pack(_NULL) if text is None else _pack_text(INT16, text)


def pack_utf(text: str) -> bytes:
    """Pack a text as Java's `writeUTF` does."""
    return _pack_text(UINT16, text)


def _pack_text(length: Struct, text: str) -> bytes:
    raw = text.encode()
    return length.pack(len(raw)) + raw


def pack_bytes(raw: bytes | None) -> bytes:
    """Pack Kafka's BYTES, or NULLABLE_BYTES."""
    return INT32.pack(_NULL) if raw is None else INT32.pack(len(raw)) + raw


def pack_array(items: Iterable[bytes]) -> bytes:
    """Pack a list of packed items."""
    packed = list(items)
    return INT32.pack(len(packed)) + b"".join(packed)


class Reader:
    """Reads from the front of bytes of another program, and checks everything."""

    def __init__(self, raw: bytes, what: str) -> None:
        """Begin at the first byte; `what` names the bytes and their sender in an error."""
        self._raw = raw
        self._what = what
        self._at = 0

    def refuse(self, problem: str) -> NoReturn:
        """Raise MemberForeign: these bytes are not what they should be."""
        message = (
            f"{self._what} cannot be read: {problem}, up to byte {self._at} of {len(self._raw)};"
            " another program is in the group of this pipeline: stop it, or give it a group of"
            " its own"
        )
        raise MemberForeign(message)

    def take(self, count: int) -> bytes:
        """Take so many bytes; refuse if there are fewer."""
        if count < 0:
            self.refuse(f"a length is {count}")
        end = self._at + count
        if end > len(self._raw):
            self.refuse(f"it ends where {count} bytes should follow")
        taken = self._raw[self._at : end]
        self._at = end
        return taken

    def number(self, kind: Struct) -> int:
        """Read a number."""
        value: int = kind.unpack(self.take(kind.size))[0]
        return value

    def natural(self, kind: Struct, what: str) -> int:
        """Read a number that is never below zero."""
        value = self.number(kind)
        if value < 0:
            self.refuse(f"{what} is {value}")
        return value

    def string(self) -> str | None:
        """Read Kafka's NULLABLE_STRING."""
        length = self.number(INT16)
        return None if length == _NULL else self._text(length)

    def name(self) -> str:
        """Read Kafka's STRING."""
        return self._text(self.number(INT16))

    def utf(self) -> str:
        """Read a text that Java's `writeUTF` wrote."""
        return self._text(self.number(UINT16))

    def _text(self, length: int) -> str:
        raw = self.take(length)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.refuse("a text is not UTF-8")

    def blob(self) -> bytes | None:
        """Read Kafka's NULLABLE_BYTES."""
        length = self.number(INT32)
        return None if length == _NULL else self.take(length)

    def pairs(self, what: str) -> list[tuple[int, int]]:
        """Read a list of pairs of numbers of 4 bytes each, none below zero."""
        count = self.natural(INT32, "the length of a list")
        pairs = list(_PAIR.iter_unpack(self.take(count * _PAIR.size)))
        if any(first < 0 or second < 0 for first, second in pairs):
            self.refuse(f"{what} is below zero")
        return pairs

    def array(self, read: Callable[[], Item]) -> list[Item]:
        """Read a list; a false length fails at the end of the bytes, since every item has some."""
        return [read() for _ in range(self.natural(INT32, "the length of a list"))]
