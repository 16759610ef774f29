"""What a topology makes of a batch, as columns of rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spark_jobs.versioned.records import Records, objects

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from contracts.record import Record
    from spark_jobs.versioned.records import Integers, Objects
    from spark_jobs.versioned.tables import Change


class Results(NamedTuple):
    """Rows that leave with one verdict, in columns."""

    verdict: str
    causes: Integers
    """Index, in the batch, of the arrival that caused each row."""
    records: Records
    """Whose headers and origin each row has."""
    keys: Objects
    values: Objects
    times_ms: Integers
    table_values: pa.LargeBinaryArray | None = None
    """What a table says to each row, where one is asked."""


@dataclass(slots=True)
class Collected:
    """Rows that leave with one verdict, as they come."""

    verdict: str
    causes: list[int] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)

    def add_changes(self, changes: Iterable[Change]) -> None:
        """Append changes of a table."""
        for change in changes:
            self.causes.append(change.cause)
            self.records.append(change.record)
            self.keys.append(change.key)
            self.values.append(change.new)
            self.times_ms.append(change.timestamp_ms)

    def add(self, cause: int, record: Record, key: bytes | None, value: bytes | None) -> None:
        """Append a message, at its record's time."""
        self.causes.append(cause)
        self.records.append(record)
        self.keys.append(key)
        self.values.append(value)
        self.times_ms.append(record.timestamp_ms)

    def results(self) -> Results:
        """All of them."""
        return Results(
            self.verdict,
            np.array(self.causes, np.int64),
            Records.of(self.records),
            objects(self.keys),
            objects(self.values),
            np.array(self.times_ms, np.int64),
        )
