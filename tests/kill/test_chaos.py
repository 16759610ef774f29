"""Plans: whatever the seed, they hold what they promise."""

from __future__ import annotations

import pytest

from tests.kill.chaos import KILLS_A_HAND, plan


@pytest.mark.parametrize("seed", range(30))
def test_a_hand_has_everything_in_it(seed: int) -> None:
    strikes = plan(seed, KILLS_A_HAND, broker_too=True)
    kills = sum(strike.kills for strike in strikes)
    assert KILLS_A_HAND <= kills <= KILLS_A_HAND + 1
    assert any(strike.wipes for strike in strikes)
    kinds = {strike.kind for strike in plan(seed, 2 * KILLS_A_HAND, broker_too=True)}
    assert kinds >= {"kill", "both", "nap", "zombie", "zombie and heir", "stop", "broker"}
    assert kinds & {"guest", "guest killed"}


@pytest.mark.parametrize("seed", range(30))
def test_hands_tear_transactions(seed: int) -> None:
    strikes = plan(seed, 3 * KILLS_A_HAND)
    assert sum(strike.tears for strike in strikes) >= 5


def test_the_same_seed_gives_the_same_plan() -> None:
    assert plan(7, 40) == plan(7, 40)
    assert plan(7, 40) != plan(8, 40)


def test_a_plan_without_the_broker_leaves_it_alone() -> None:
    assert all(strike.kind != "broker" for strike in plan(1, 100))
