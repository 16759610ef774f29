"""How many tasks of each hop a seat gets: even by hop, even in all, with the fewest moves.

A fair share is a fraction. Of each hop every seat gets its share rounded down. The tasks that this
leaves over go to some of the seats, one each. These seats are chosen so that, in this order,

1. of all hops together every seat has its share in all of them, rounded up or down;
2. a seat that now owns more than the rounded share is chosen, so that nothing moves;
3. a seat with copies is chosen, so that a task can move at once;
4. names decide, so that every leader finds the same.

There is always a choice that satisfies the first point: a table of fractions can be rounded so that
its sums are rounded as well. The best choice is the cheapest flow from hops to seats, found one
task at a time. A task takes the seat that costs least. If another hop has that seat, the other hop
takes another one.

Where all seats have one capacity and there are one or two hops, a seat that joins gets tasks from
the others, and no other seat does. When a seat leaves, only its tasks move. With more hops, or
several capacities, evenness may cost a move more now and then.
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
    """The tasks of one hop, and the capacity, tasks and copies that each seat has there."""

    tasks: int
    capacities: Mapping[str, int]
    owned: Counter[str]
    copies: Counter[str]
    """Copies of tasks that another seat owns, or none."""

    def shares(self) -> dict[str, Fraction]:
        """Return each seat's share, as if tasks could be divided."""
        total = sum(self.capacities.values())
        return {seat: Fraction(self.tasks * own, total) for seat, own in self.capacities.items()}


def find_quotas(stakes: Mapping[int, Stakes]) -> dict[int, dict[str, int]]:
    """Return the number of tasks by hop and seat; they add up to all tasks."""
    flow = _Flow(stakes)
    for hop, of_hop in stakes.items():
        for _ in range(of_hop.tasks - sum(flow.rounded[hop].values())):
            flow.add(hop)
    return {
        hop: {seat: count + (seat in flow.left_over[hop]) for seat, count in rounded.items()}
        for hop, rounded in flow.rounded.items()
    }


class _Way(NamedTuple):
    """A way in which a hop gets one more seat."""

    cost: float
    seat: str = ""
    robbed: int | None = None
    """The hop that has the seat now; None where it is free."""


class _Flow:
    """The seats chosen so far for the tasks left over, at the least cost."""

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
        # Each of the reasons above outweighs all that come after it, taken together.
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
        """Return a cost: below zero if a seat must have one more, above if it has its share."""
        count = self._count[seat] + 1
        too_many, is_due = max(0, count - self._most[seat]), count <= self._least[seat]
        return (too_many - is_due) * self._weight**4

    def add(self, hop: int) -> None:
        """Give a hop one more seat."""
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
