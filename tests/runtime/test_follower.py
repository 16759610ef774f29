"""A copy says that it was kept up until a time at which it really lacked nothing."""

from __future__ import annotations

from headrace.services.runtime.standby.follower import KeptUp


def test_a_copy_that_lags_is_not_kept_up() -> None:
    kept_up = KeptUp()
    assert kept_up.until_ms(reached=10, end=100, now_ms=1_000) is None
    assert kept_up.until_ms(reached=99, end=900, now_ms=2_000) is None
    # It has what there was at the first look, and by far not what there is now.
    assert kept_up.until_ms(reached=100, end=5_000, now_ms=3_000) == 1_000
    assert kept_up.until_ms(reached=200, end=6_000, now_ms=4_000) is None
    assert kept_up.until_ms(reached=6_001, end=7_000, now_ms=5_000) == 4_000


def test_a_copy_that_has_all_is_kept_up_until_now() -> None:
    kept_up = KeptUp()
    assert kept_up.until_ms(reached=100, end=100, now_ms=1_000) == 1_000
    assert kept_up.until_ms(reached=100, end=100, now_ms=2_000) == 2_000
