"""The row before a run: what it says, what is cut off it, and which rows are others."""

from __future__ import annotations

import pytest

from headrace.contracts.origin import (
    RUN_HEADER,
    Origin,
    read_run,
    read_run_times,
    run_headers,
    within,
)
from headrace.contracts.record import Headers, Record

ORIGINS: list[Origin] = [(3, 10, 700), (3, 12, 500), (3, 15, 900)]


def row(headers: Headers, key: bytes | None = None, value: bytes | None = None) -> Record:
    """A record of a repartition topic."""
    return Record(key, value, 0, headers, "place", 0, 0)


@pytest.mark.parametrize("records", range(5))
def test_a_run_is_cut_to_the_records_that_stand_behind_it(records: int) -> None:
    found = row(within(run_headers(ORIGINS), records))
    assert read_run(found) == ORIGINS[:records]
    assert read_run_times(found) == (3, [time_ms for _, _, time_ms in ORIGINS[:records]])


@pytest.mark.parametrize("length", [*range(20), 31, 35, 37])
def test_a_row_of_another_length_is_no_run(length: int) -> None:
    headers = ((RUN_HEADER, bytes(length)),)
    is_run = length in {4, 20, 36}
    assert (read_run(row(headers)) is not None) == is_run
    assert (read_run_times(row(headers)) is not None) == is_run
    assert within(headers, 0) == (((RUN_HEADER, bytes(4)),) if is_run else headers)


def test_a_row_with_a_key_or_a_value_or_other_headers_is_no_run() -> None:
    headers = run_headers(ORIGINS)
    others = [
        row(headers, key=b""),
        row(headers, value=b""),
        row(()),
        row((*headers, *headers)),
        row(((RUN_HEADER, None),)),
        row((("headrace.ran", headers[0][1]),)),
    ]
    assert [read_run(one) for one in others] == [None] * len(others)
    assert [read_run_times(one) for one in others] == [None] * len(others)
    assert within(others[3].headers, 0) == others[3].headers
