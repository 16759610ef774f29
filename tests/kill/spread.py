"""A pipeline of two hops: what holds of it, whatever order the partitions' records meet in.

Between the hops, records are spread by id. Which of two partitions' records comes first there is
nobody's to say, so the oracle of the second hop goes by the order that there really was. That order
itself must keep to this:

    every record that leaves the first hop stands there once
    records of one id stand in one partition, records without id in the one they came from
    records that came from one partition, and stand in one, stand in their order

And of the cleaned topic, since no id is ever forgotten in these runs, it holds whatever the order:

    every id that there is leaves once, as one of its records
    every record without id leaves once
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from headrace.contracts.record import Record, offset_of
from tests.kill.expected import Leaving
from tests.kill.stream import NUMBER_HEADER
from tests.properties.compose import identity_of


def order_problems(leaving: Sequence[Leaving], between: Sequence[Record]) -> Iterator[str]:
    """Yield the problems with the order of records between two hops."""
    origins = {number_of(one): one.cause for one in leaving}
    homes: dict[object, int] = {}
    latest: dict[tuple[int, int], int] = {}
    for record in between:
        origin = origins.get(number_of(record))
        if origin is None:
            continue  # dirty, and told already
        where = f"{record.topic}/{record.partition}@{record.offset}"
        identity = identity_of(record, "id")
        home = (
            origin.partition if identity is None else homes.setdefault(identity, record.partition)
        )
        if record.partition != home:
            yield f"{where}: id {identity!r} stands in partition {home} as well"
        way = origin.partition, record.partition
        if offset_of(origin) < latest.get(way, -1):
            yield f"{where}: its source offset {origin.offset} comes behind {latest[way]}"
        latest[way] = offset_of(origin)


def id_problems(leaving: Sequence[Leaving], cleaned: Sequence[Record]) -> Iterator[str]:
    """Which ids, and records without id, did not leave once."""
    came = _by_identity([one.cause for one in leaving])
    left = _by_identity(cleaned)
    for identity, numbers in came.items():
        found = left.pop(identity, Counter())
        if identity is None:
            yield from _differences("records without id", numbers, found)
        elif found.total() != 1 or not found.keys() <= numbers.keys():
            yield f"id {identity!r} came as {_shown(numbers)}, and left as {_shown(found)}"
    yield from (f"id {identity!r} left and never came" for identity in left)


def number_of(record: Record | Leaving) -> bytes | None:
    """The number that tells a record from all others."""
    return next((value for name, value in record.headers if name == NUMBER_HEADER), None)


def _by_identity(records: Sequence[Record]) -> dict[object, Counter[bytes | None]]:
    by_identity: dict[object, Counter[bytes | None]] = defaultdict(Counter)
    for record in records:
        by_identity[identity_of(record, "id")][number_of(record)] += 1
    return by_identity


def _differences(
    what: str, came: Counter[bytes | None], left: Counter[bytes | None]
) -> Iterator[str]:
    if came != left:
        yield f"{what}: lost {_shown(came - left)}, doubled or dirty {_shown(left - came)}"


def _shown(numbers: Counter[bytes | None]) -> str:
    return " ".join(str(number) for number in numbers.elements()) or "none"
