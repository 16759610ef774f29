"""The topics that a state was written from: it stays with them, and takes no others."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.contracts.errors import StateRefused
from headrace.services.state.changelog import Stamp
from headrace.services.state.partition import PartitionState
from headrace.services.state.stamps import check_stamp
from tests.state.test_stamps import reorder, stamp, state

__all__ = ["state"]


def with_topics(of: Stamp, **known: Any) -> Stamp:
    """A stamp that says other things of its topics."""
    return of._replace(**known)


KNOWN = {"topic_id": "1", "partitions": 4, "spread_over": 6}


@pytest.mark.parametrize(
    ("name", "other", "sentence"),
    [
        ("topic_id", "2", "`raw` was deleted and made anew since this state was written"),
        ("partitions", 5, "`raw` had 4 partitions when this state was written, and has 5 now"),
        ("spread_over", 5, "spread by id over 6 partitions, and the repartition topic has 5 now"),
    ],
)
def test_topics_that_are_not_what_they_were_are_refused(
    state: PartitionState, name: str, other: object, sentence: str
) -> None:
    now = with_topics(stamp(reorder()), **KNOWN)
    for unknown in (with_topics(now, **{name: None}), now):
        # An unknown identity is accepted, and known from then on.
        assert check_stamp(state, now) == []
        state.stamp_with(unknown)
    with pytest.raises(StateRefused, match=sentence) as refused:
        check_stamp(state, with_topics(now, **{name: other}))
    assert refused.value.exit_code == 4
    assert "headrace reset" in str(refused.value)
    assert check_stamp(state, with_topics(now, **{name: None})) == []
