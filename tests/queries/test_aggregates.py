"""Groups that are folded change by change are what they would be, computed anew from their rows."""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.spark_jobs.queries.aggregates import Folded, Regrouped, folding

KINDS: tuple[Folded, ...] = (
    Folded("count", "number", counts_rows=True),
    Folded("count", "text", counts_rows=False),
    Folded("sum", "number", counts_rows=False),
    Folded("min", "number", counts_rows=False),
    Folded("max", "double", counts_rows=False),
    Folded("avg", "number", counts_rows=False),
    Folded("max", "text", counts_rows=False),
    Folded("collect", "number", counts_rows=False),
)
PATHS = (None, ("n",), ("n",), ("n",), ("d",), ("n",), ("t",), ("n",))
MANY_DIGITS = Decimal("99999999999999999999999999999999999.99")
numbers = st.sampled_from([None, Decimal("0.01"), Decimal("-7.50"), MANY_DIGITS]) | st.decimals(
    -100, 100, places=2, allow_nan=False
)
doubles = st.sampled_from([None, "1.5", "-2.0", "1.0E10", '"NaN"', '"Infinity"', "7"])
texts = st.none() | st.text(max_size=2)
values = st.none() | st.tuples(st.sampled_from(["a", "b", None]), numbers, doubles, texts)
changes = st.lists(st.tuples(st.sampled_from([b"r1", b"r2", b"r3"]), values), max_size=30)
Row = tuple[str | None, Decimal | None, str | None, str | None]


def written(row: Row) -> bytes:
    group, number, double, text = row
    words = {
        "g": json.dumps(group),
        "n": "null" if number is None else format(number, "f"),
        "d": double or "null",
        "t": json.dumps(text, ensure_ascii=False),
    }
    return f"{{{','.join(f'{json.dumps(k)}:{word}' for k, word in words.items())}}}".encode()


def anew(rows: list[Row]) -> list[Any]:
    """All aggregates of a group, from nothing but its rows."""
    found = [number for _, number, _, _ in rows if number is not None]
    said = [text for *_, text in rows if text is not None]
    floats = [float(json.loads(d)) for _, _, d, _ in rows if d is not None]
    is_nan = any(one != one for one in floats)  # noqa: PLR0124 (only what is no number is not itself)
    with localcontext(prec=1_000):
        total = sum(found, Decimal(0))
    return [
        len(rows),
        len(found),
        total if found else None,
        min(found, default=None),
        "nan" if is_nan else max(floats, default=None),
        (total, len(found)) if found else None,
        max(said, key=str.encode, default=None),
        sorted(found),
    ]


def read(texts: list[str | None]) -> list[Any]:
    rows, of, total, least, double, mean, text, every = texts
    greatest = None if double is None else float(double)
    parts = None if mean is None else mean.split("/")
    return [
        int(rows or 0),
        int(of or 0),
        None if total is None else Decimal(total),
        None if least is None else Decimal(least),
        "nan" if greatest is not None and greatest != greatest else greatest,  # noqa: PLR0124 (as above)
        None if parts is None else (Decimal(parts[0]), int(parts[1])),
        text,
        sorted(Decimal(one) for one in json.loads(every or "")),
    ]


@example([(b"r1", ("a", Decimal(1), None, None)), (b"r2", ("a", Decimal(1), None, None))])
@example([(b"r1", ("a", MANY_DIGITS, None, None)), (b"r2", ("a", Decimal("0.01"), None, None))])
@given(changes)
def test_a_group_is_what_its_rows_are(changes: list[tuple[bytes, Row | None]]) -> None:
    regroup = Regrouped((("g",),), PATHS)
    initial, add, subtract, form, _ = folding(1, KINDS)
    assert initial is not None
    assert form is not None
    rows: dict[bytes, Row] = {}
    groups: dict[bytes, bytes] = {}
    for key, row in changes:
        before = rows.pop(key, None)
        old = None if before is None else regroup(key, written(before))
        if old is not None:
            left = subtract(old[0], old[1], form.read(groups.pop(old[0])))
            if left is not None:
                groups[old[0]] = form.write(left)
        new = None if row is None else regroup(key, written(row))
        if row is not None:
            rows[key] = row
        if new is not None:
            standing = form.read(groups[new[0]]) if new[0] in groups else initial()
            groups[new[0]] = form.write(add(new[0], new[1], standing))
    wanted = {
        group: anew([row for row in rows.values() if row[0] == group])
        for group in {row[0] for row in rows.values() if row[0] is not None}
    }
    found = {group.decode(): read(json.loads(kept)["a"]) for group, kept in groups.items()}
    assert found == wanted


def test_times_have_the_order_of_their_years() -> None:
    """Spark writes years beyond four digits with a sign, which is less than any digit."""
    times = ["-0044-03-15", "0000-12-31", "0999-01-01", "2026-11-26", "9999-12-31", "+10000-01-01"]
    kinds = [Folded(kind, "time", counts_rows=False) for kind in ("min", "max", "collect")]
    initial, add, subtract, form, _ = folding(0, kinds)
    assert initial is not None
    assert form is not None
    group = initial()
    for time in reversed(times):
        group = add(b"", json.dumps([f"{time}T00:00:00.000000Z"] * 3).encode(), group)
    least, greatest, every = json.loads(form.write(group))["a"]
    assert (least[:11], greatest[:13]) == ("-0044-03-15", "+10000-01-01T")
    assert json.loads(every) == [f"{time}T00:00:00.000000Z" for time in times]
    group = subtract(b"", json.dumps([greatest] * 3).encode(), group)
    assert json.loads(form.write(group))["a"][1] == "9999-12-31T00:00:00.000000Z"
