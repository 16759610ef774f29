"""A sample by brute force."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from tests.oracles.expected import Expected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.contracts.record import Record


def sample(
    records: Sequence[Record], every: int, olds: Sequence[bytes | None] | None = None
) -> Expected:
    """The records whose key, or else value, has a hash that `every` divides."""
    expected = Expected()
    for cause, record in enumerate(records):
        named = next(one for one in (record.key, record.value, b"") if one is not None)
        number = int(blake2b(named, digest_size=8).hexdigest(), base=16)
        if number % every == 0:
            expected.leave(cause, record, None if olds is None else olds[cause])
    return expected
