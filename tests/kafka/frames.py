"""Requests and answers of Kafka's protocol, as a proxy carries them: a length and so many bytes."""

from __future__ import annotations

import asyncio

_LENGTH_BYTES = 4


class CutError(Exception):
    """A proxy ends a connection here."""


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next request or answer, with its length in front."""
    length = await reader.readexactly(_LENGTH_BYTES)
    return length + await reader.readexactly(int.from_bytes(length))
