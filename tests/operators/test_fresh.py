"""Records that come and go between two saves leave as from one list that is always sorted."""

from __future__ import annotations

from random import Random

from headrace.contracts.record import Record
from headrace.services.operators.fresh import Fresh
from headrace.services.operators.turns import before_turns_at, lane_of, time_of, turn_of

LANES = (-1, 0, 1, 7, (1 << 31) - 1)


def test_a_turn_has_its_time_and_lane_and_is_in_their_order() -> None:
    turns = [(time_ms, lane) for time_ms in (-2, -1, 0, 1, 1 << 50) for lane in LANES]
    numbers = [turn_of(*turn) for turn in turns]
    assert numbers == sorted(numbers)
    assert [(time_of(number), lane_of(number)) for number in numbers] == turns
    before = [before_turns_at(time_ms) for time_ms, _ in turns]
    assert all(one < number for one, number in zip(before, numbers, strict=True))
    assert [time_of(one) for one in before] == [time_ms for time_ms, _ in turns]


def test_many_batches_leave_as_one_sorted_list() -> None:
    luck = Random(19)
    fresh, held, came = Fresh(), list[tuple[int, int]](), 0
    for batch in range(300):
        turns = [turn_of(batch // 4 + luck.randrange(90), luck.choice(LANES)) for _ in range(5)]
        records = [Record(b"k", b"", 0, (), "place", 0, came + at) for at in range(5)]
        assert fresh.add(turns, records) == max(turns)
        held += zip(turns, range(came, came + 5), strict=True)
        assert fresh.first_of_batch == came
        came += 5
        held.sort()
        assert (fresh.count, fresh.first_ms) == (len(held), time_of(held[0][0]))
        if batch % 50 > 40:
            until = turn_of(batch // 4, luck.choice(LANES))
            left = fresh.release_through(until)
            assert [(turn, at) for turn, _, at in left] == [one for one in held if one[0] <= until]
            assert [record.offset for _, record, _ in left] == [at for _, _, at in left]
            held = [one for one in held if one[0] > until]
    assert [(turn, at) for turn, _, at in fresh.take_all()] == held
    assert (fresh.count, fresh.first_ms) == (0, None)
