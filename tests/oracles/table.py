"""A table by brute force: the old value is found by reading all that came before, backwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracles.expected import Expected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.contracts.record import Record


def table(records: Sequence[Record]) -> Expected:
    """Every update of a key with the value that it replaces; order of arrival decides."""
    expected = Expected()
    for cause, record in enumerate(records):
        if record.key is not None:
            earlier = [seen.value for seen in records[:cause] if seen.key == record.key]
            expected.leave(cause, record, earlier[-1] if earlier else None)
    return expected
