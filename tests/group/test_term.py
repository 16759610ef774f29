"""An instance's term ends before the group can give its partitions away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.services.group.term import NEVER_S, Term

SESSION_S, REBALANCE_S = 10.0, 30.0


def term() -> Term:
    return Term(SESSION_S, REBALANCE_S)


def test_a_member_that_has_heard_nothing_may_not_send() -> None:
    assert term().ends_at_s == NEVER_S


def test_a_heartbeat_counts_from_when_it_was_sent() -> None:
    one = term()
    one.heard(100.0, is_rebalancing=False)
    assert one.ends_at_s == 107.5


def test_an_answer_that_comes_behind_a_later_one_takes_nothing_away() -> None:
    one = term()
    one.heard(100.0, is_rebalancing=False)
    one.heard(99.0, is_rebalancing=False)
    assert one.ends_at_s == 107.5


def test_a_rebalance_that_lasts_ends_the_term_although_heartbeats_are_answered() -> None:
    one = term()
    one.heard(100.0, is_rebalancing=False)
    for sent_at_s in range(101, 140):
        one.heard(float(sent_at_s), is_rebalancing=True)
    assert one.ends_at_s == 127.5
    one.heard(140.0, is_rebalancing=False)
    assert one.ends_at_s == 147.5


def test_a_member_that_was_put_out_may_not_send_until_it_is_told_anew() -> None:
    one = term()
    one.heard(100.0, is_rebalancing=False)
    one.lost()
    assert one.ends_at_s == NEVER_S
    one.heard(101.0, is_rebalancing=True)
    assert one.ends_at_s == NEVER_S
    one.heard(102.0, is_rebalancing=False)
    assert one.ends_at_s == 109.5


Delay = st.floats(0.0, 20.0)


@given(st.lists(st.tuples(Delay, Delay, Delay, st.booleans()), max_size=30))
def test_the_term_ends_before_a_naive_group_gives_partitions_away(
    beats: list[tuple[float, float, float, bool]],
) -> None:
    """Heartbeats are on their way for as long as they like, and so are their answers."""
    one, sent_at_s = term(), 0.0
    one.heard(0.0, is_rebalancing=False)
    session_ends_s, rebalance_began_s, received_s = SESSION_S, None, 0.0
    for pause_s, way_s, way_back_s, begins in beats:
        sent_at_s = max(sent_at_s + pause_s, received_s)
        received_s = sent_at_s + way_s
        if begins and rebalance_began_s is None:
            # At any time between two heartbeats: the worst is right behind the one before.
            rebalance_began_s = sent_at_s - pause_s
        rebalance_ends_s = (
            float("inf") if rebalance_began_s is None else rebalance_began_s + REBALANCE_S
        )
        given_away_s = min(session_ends_s, rebalance_ends_s)
        assert one.ends_at_s < given_away_s
        if received_s >= given_away_s:
            return
        session_ends_s = received_s + SESSION_S
        one.heard(sent_at_s, is_rebalancing=rebalance_began_s is not None)
        received_s += way_back_s
