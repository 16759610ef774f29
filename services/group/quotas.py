"""How many tasks of each hop everybody gets: even by hop, even in all, with the fewest moves.

A fair share is a fraction. Of each hop everybody gets it rounded down, and some get one more, of
those that rounding left over; who, is chosen so that, in this order,

1. of all hops together everybody has the share in all of them, rounded up or down;
2. they are where more is owned now than the rounded share, so that nothing moves;
3. they are where copies are, so that what moves can do so at once;
4. names decide, so that whoever leads finds the same.

There is always a choice that keeps to the first: a table of fractions can be rounded so that its
sums are rounded as well. The best one is the cheapest flow from hops to seats, found one task at a
time: it takes the seat that costs least, if need be from another hop, which then takes another.

Where all have one capacity and there are one or two hops, whoever joins gets tasks from the others
and nobody else does, and what somebody leaves behind is all that moves. With more hops, or several
capacities, being even may cost a move more now and then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, inf
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Stakes:
    """What everybody has to do with the tasks of one hop."""

    tasks: int
    capacities: Mapping[str, int]
    owned: Counter[str]
    copies: Counter[str]
    """Of tasks that somebody else owns, or nobody."""

    def shares(self) -> dict[str, Fraction]:
        """What everybody would have, if tasks could be divided."""
        total = sum(self.capacities.values())
        return {seat: Fraction(self.tasks * own, total) for seat, own in self.capacities.items()}


def find_quotas(stakes: Mapping[int, Stakes]) -> dict[int, dict[str, int]]:
    """By hop and seat, how many tasks; together, all of them."""
    flow = _Flow(stakes)
    for hop, of_hop in stakes.items():
        for _ in range(of_hop.tasks - sum(flow.rounded[hop].values())):
            flow.add(hop)
    return {
        hop: {seat: count + (seat in flow.left_over[hop]) for seat, count in rounded.items()}
        for hop, rounded in flow.rounded.items()
    }


class _Way(NamedTuple):
    """How a hop gets one more seat."""

    cost: float
    seat: str = ""
    robbed: int | None = None
    """The hop that has the seat now; None where it is free."""


class _Flow:
    """The seats that the tasks left over have found so far, at the least cost."""

    def __init__(self, stakes: Mapping[int, Stakes]) -> None:
        shares = {hop: of_hop.shares() for hop, of_hop in stakes.items()}
        self.rounded = {
            hop: {seat: floor(share) for seat, share in of_hop.items()}
            for hop, of_hop in shares.items()
        }
        self.left_over: dict[int, set[str]] = {hop: set() for hop in stakes}
        in_all: dict[str, Fraction] = {}
        self._count: Counter[str] = Counter()
        for hop, of_hop in shares.items():
            self._count.update(self.rounded[hop])
            for seat, share in of_hop.items():
                in_all[seat] = in_all.get(seat, Fraction()) + share
        self._least = {seat: floor(share) for seat, share in in_all.items()}
        self._most = {seat: ceil(share) for seat, share in in_all.items()}
        # Of the reasons above, each outweighs all that come after it, taken together.
        self._weight = len(shares) * len(in_all) + 1
        self._costs = {
            hop: {
                seat: self._cost(stakes[hop], seat, rounded) + place
                for place, (seat, rounded) in enumerate(sorted(self.rounded[hop].items()))
                if of_hop[seat].denominator > 1
            }
            for hop, of_hop in shares.items()
        }

    def _cost(self, stakes: Stakes, seat: str, rounded: int) -> int:
        moves = stakes.owned[seat] <= rounded
        waits = stakes.owned[seat] + stakes.copies[seat] <= rounded
        return (moves * self._weight + waits) * self._weight**2

    def _cost_in_all(self, seat: str) -> int:
        """Below zero where a seat must have one more, above where it has its share already."""
        count = self._count[seat] + 1
        too_many, is_due = max(0, count - self._most[seat]), count <= self._least[seat]
        return (too_many - is_due) * self._weight**4

    def add(self, hop: int) -> None:
        """One more seat for a hop."""
        ways = self._cheapest_ways()
        getting: int | None = hop
        while getting is not None:
            _, seat, robbed = ways[getting]
            self.left_over[getting].add(seat)
            if robbed is None:
                self._count[seat] += 1
            else:
                self.left_over[robbed].remove(seat)
            getting = robbed

    def _cheapest_ways(self) -> dict[int, _Way]:
        ways = dict.fromkeys(self._costs, _Way(inf))
        for _ in ways:
            for hop in ways:
                ways[hop] = min([ways[hop], *self._ways(hop, ways)], key=lambda way: way.cost)
        return ways

    def _ways(self, hop: int, ways: Mapping[int, _Way]) -> Iterator[_Way]:
        for seat, cost in self._costs[hop].items():
            if seat in self.left_over[hop]:
                continue
            yield _Way(cost + self._cost_in_all(seat), seat)
            for other, seats in self.left_over.items():
                if seat in seats:
                    saved = cost - self._costs[other][seat]
                    yield _Way(saved + ways[other].cost, seat, other)
