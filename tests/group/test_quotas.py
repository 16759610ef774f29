"""Quotas against all the tables that could have been."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from math import ceil, floor

from hypothesis import given
from hypothesis import strategies as st

from headrace.services.group.quotas import Stakes, find_quotas

Table = dict[int, dict[str, int]]
counts = st.lists(st.integers(0, 3), min_size=3, max_size=3)


@st.composite
def stakes(draw: st.DrawFn) -> dict[int, Stakes]:
    """Up to three hops and three seats."""
    capacities = {seat: draw(st.integers(1, 2)) for seat in "abc"[: draw(st.integers(1, 3))]}
    return {
        hop: Stakes(
            draw(st.integers(1, 7)),
            capacities,
            Counter(dict(zip(capacities, draw(counts), strict=False))),
            Counter(dict(zip(capacities, draw(counts), strict=False))),
        )
        for hop in range(draw(st.integers(1, 3)))
    }


def tables(stakes: Mapping[int, Stakes]) -> Iterator[Table]:
    """Every way to round the shares of every hop."""
    choices = []
    for of_hop in stakes.values():
        rounded = {seat: floor(share) for seat, share in of_hop.shares().items()}
        seats = [seat for seat, share in of_hop.shares().items() if share.denominator > 1]
        left_over = of_hop.tasks - sum(rounded.values())
        choices.append(
            [
                {seat: count + (seat in chosen) for seat, count in rounded.items()}
                for chosen in combinations(seats, left_over)
            ]
        )
    for rows in product(*choices):
        yield dict(zip(stakes, rows, strict=True))


def is_even_in_all(stakes: Mapping[int, Stakes], table: Table) -> bool:
    """Whether everybody has its share of all hops together, rounded."""
    return all(
        floor(share) <= sum(table[hop][seat] for hop in stakes) <= ceil(share)
        for seat in stakes[0].capacities
        for share in [sum(of_hop.shares()[seat] for of_hop in stakes.values())]
    )


def moves(stakes: Mapping[int, Stakes], table: Table) -> int:
    """How many tasks somebody has to give up."""
    return sum(
        max(0, of_hop.owned[seat] - table[hop][seat])
        for hop, of_hop in stakes.items()
        for seat in of_hop.capacities
    )


@given(stakes())
def test_no_table_is_better(stakes: dict[int, Stakes]) -> None:
    found = find_quotas(stakes)
    even = [table for table in tables(stakes) if is_even_in_all(stakes, table)]
    assert found in even
    assert moves(stakes, found) == min(moves(stakes, table) for table in even)


def settled(tasks: list[int], before: Table, seats: str) -> Table:
    """Quotas of a group that has had others."""
    return find_quotas(
        {
            hop: Stakes(
                count,
                dict.fromkeys(seats, 1),
                Counter({seat: before.get(hop, {}).get(seat, 0) for seat in seats}),
                Counter(),
            )
            for hop, count in enumerate(tasks)
        }
    )


@given(
    st.lists(st.integers(1, 15), min_size=1, max_size=2),
    st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=12),
)
def test_one_or_two_hops_move_nothing_that_need_not(
    tasks: list[int], happenings: list[tuple[bool, int]]
) -> None:
    seats, new = "a", iter("bcdefghijklmnopqrstuvwxyz")
    before = settled(tasks, {}, seats)
    for joins, number in happenings:
        if joins or len(seats) == 1:
            after = settled(tasks, before, seats + next(new))
            assert all(after[hop][seat] <= before[hop][seat] for hop in before for seat in seats)
        else:
            gone = seats[number % len(seats)]
            seats = seats.replace(gone, "")
            after = settled(tasks, before, seats)
            assert all(after[hop][seat] >= before[hop][seat] for hop in before for seat in seats)
        before, seats = after, "".join(after[0])


def test_two_hops_with_one_task_each_go_to_two() -> None:
    alone: Table = {0: {"a": 1}, 1: {"a": 1}}
    after = settled([1, 1], alone, "ab")
    assert Counter(seat for of_hop in after.values() for seat in of_hop if of_hop[seat]) == {
        "a": 1,
        "b": 1,
    }


def test_copies_come_before_names() -> None:
    of_hop = Stakes(1, {"a": 1, "b": 1}, Counter(), Counter(b=1))
    assert find_quotas({0: of_hop}) == {0: {"a": 0, "b": 1}}
