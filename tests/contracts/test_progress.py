"""The rows of `<cleaned>.progress`: readable for ever, and told apart from each other."""

from __future__ import annotations

import pytest

from headrace.contracts.progress import (
    LAYOUT,
    MILESTONE_OFFSETS,
    PIPELINE_KEY,
    CleanedBy,
    Progress,
    cleaned_by_row,
    milestone_of,
    milestone_row,
    progress_row,
    read_cleaned_by,
    read_progress,
)

PROGRESS = Progress(12, -1, 1_700_000_000_000, "raw.\u00f6", 1 << 40, 1 << 41)
CLEANED_BY = CleanedBy("clicks", LAYOUT, "id of once", {"pipeline": "clicks", "\u00f6": None})
GOLDEN_PROGRESS = (
    b"12",
    (
        b'{"progress_ms":-1,"stream_time_ms":1700000000000,"source_topic":"raw.\\u00f6",'
        b'"source_offset":1099511627776,"cleaned_offset":2199023255552}'
    ),
)
BEFORE_IT_NAMED_A_RECORD = (
    b"12",
    (
        b'{"progress_ms":-1,"stream_time_ms":1700000000000,"source_topic":"raw.\\u00f6",'
        b'"source_offset":1099511627776}'
    ),
)
GOLDEN_IDLE = b"12", GOLDEN_PROGRESS[1][:-1] + b',"is_idle":true}'
OF_A_LATER_VERSION = b"12", GOLDEN_PROGRESS[1][:-1] + b',"more":[1]}'
GOLDEN_CLEANED_BY = (
    b"pipeline",
    (
        b'{"pipeline":"clicks","layout":1,"partitioned_by":"id of once",'
        b'"spec":{"pipeline":"clicks","\\u00f6":null}}'
    ),
)


def test_rows_are_written_byte_for_byte_as_ever() -> None:
    assert progress_row(PROGRESS) == GOLDEN_PROGRESS
    assert progress_row(PROGRESS._replace(is_idle=True)) == GOLDEN_IDLE
    assert cleaned_by_row(CLEANED_BY) == GOLDEN_CLEANED_BY


def test_a_milestone_is_the_same_under_a_key_of_its_own() -> None:
    key, value = milestone_row(PROGRESS)
    assert (key, value) == (b"12@21990232", GOLDEN_PROGRESS[1])
    assert read_progress(key, value) == PROGRESS
    assert milestone_of(PROGRESS._replace(cleaned_offset=MILESTONE_OFFSETS - 1)) == 0
    assert milestone_of(PROGRESS._replace(cleaned_offset=MILESTONE_OFFSETS)) == 1
    assert milestone_of(PROGRESS._replace(cleaned_offset=None)) == 0


def test_rows_come_back_as_they_were() -> None:
    assert read_progress(*GOLDEN_PROGRESS) == PROGRESS
    assert read_progress(*BEFORE_IT_NAMED_A_RECORD) == PROGRESS._replace(cleaned_offset=None)
    assert read_progress(*GOLDEN_IDLE) == PROGRESS._replace(is_idle=True)
    assert read_progress(*OF_A_LATER_VERSION) == PROGRESS
    nothing = PROGRESS._replace(cleaned_offset=None)
    assert read_progress(*progress_row(nothing)) == nothing
    assert read_cleaned_by(*GOLDEN_CLEANED_BY) == CLEANED_BY


def test_the_row_of_a_later_version_says_its_layout_whatever_else_it_has() -> None:
    more = GOLDEN_CLEANED_BY[1][:-1] + b',"more":[1]}'
    assert read_cleaned_by(PIPELINE_KEY, more) == CLEANED_BY
    found = read_cleaned_by(PIPELINE_KEY, b'{"layout":2,"written_by":{}}')
    assert found is not None
    assert found.layout == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"3@", b"{}"),
        (b"3@x", b"{}"),
        (b"@3", b"{}"),
        (b"3", None),
        (b"", b"{}"),
        (b"-1", b"{}"),
        (b"x", b"{}"),
        GOLDEN_CLEANED_BY,
    ],
)
def test_records_that_are_no_progress_are_set_apart(key: bytes | None, value: bytes | None) -> None:
    assert read_progress(key, value) is None


@pytest.mark.parametrize(
    ("key", "value"), [(None, b"{}"), (PIPELINE_KEY, None), (b"3", b"{}"), GOLDEN_PROGRESS]
)
def test_rows_that_say_not_who_writes_are_set_apart(key: bytes | None, value: bytes | None) -> None:
    assert read_cleaned_by(key, value) is None
