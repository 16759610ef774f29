"""The offset at which a task begins to read: judged over numbers, without a broker."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from headrace.contracts.errors import StateTruncated
from headrace.services.runtime.input.binding import Bounds
from headrace.services.runtime.task.start import Start, start_at


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize(
    ("reached", "committed", "is_ours", "start"),
    [
        (None, None, False, 4),
        (6, 6, True, 6),
        (6, 5, True, 6),
        (5, 6, False, 6),
        (None, 7, False, 7),
        (9, 9, True, 9),
    ],
)
def test_a_task_begins_behind_what_its_state_has_and_its_group_was_told(
    reached: int | None, committed: int | None, *, is_ours: bool, start: int, exactly_once: bool
) -> None:
    bounds = Bounds(4, 9, committed, is_ours=is_ours)
    assert start_at("a/0", reached, bounds, exactly_once=exactly_once) == Start(start, 0)


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize(
    ("reached", "committed", "lost"), [(0, 0, 4), (0, None, 4), (None, 0, 4), (3, 3, 1)]
)
def test_a_start_says_how_many_records_the_source_lost_before_they_were_read(
    reached: int | None, committed: int | None, lost: int, *, exactly_once: bool
) -> None:
    """A pipeline that began over an empty source has reached offset zero, which is no beginning."""
    bounds = Bounds(4, 9, committed, is_ours=True)
    with capture_logs() as said:
        assert start_at("a/0", reached, bounds, exactly_once=exactly_once) == Start(4, 0)
    (error,) = said
    assert error["event"].startswith("records were deleted before they were read")
    assert error["lost_offsets"] == lost


def test_a_state_behind_its_group_is_made_again_in_silence_where_its_group_is_told_by_it() -> None:
    bounds = Bounds(4, 9, 8, is_ours=True)
    assert start_at("a/0", 6, bounds, exactly_once=True) == Start(6, 8)
    assert start_at("a/0", 6, bounds, exactly_once=False) == Start(8, 0)
    with pytest.raises(StateTruncated, match="ends with 2, and the source begins at 4 by now"):
        start_at("a/0", 2, bounds, exactly_once=True)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_source_that_ends_before_its_state_is_refused(*, exactly_once: bool) -> None:
    with pytest.raises(StateTruncated, match="ends at offset 9, and the state has reached 12"):
        start_at("a/0", 12, Bounds(4, 9, 12, is_ours=True), exactly_once=exactly_once)
