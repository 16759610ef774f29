"""`headrace group` shows names whole, however narrow the terminal, and how far behind each is."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from headrace.contracts.hops import hops_of
from headrace.services.cli.group import print_members
from headrace.services.group.member import TaskId
from headrace.services.group.view import GroupView, MemberView

NAME = "headrace-consumer-2f1c9a52-6d3e-4a4b-9a53-0b9b8a1d7c11"
HOPS = hops_of("clicks", "clicks.of-every-shop.in-every-country.raw", [])


MEMBER = MemberView(
    NAME,
    "127.0.0.1",
    3,
    active=frozenset({TaskId(0, 0)}),
    standbys=frozenset({TaskId(0, 1)}),
    learners=frozenset(),
    lags={},
    joined_at_ms=0,
    reason="",
)


@pytest.mark.parametrize("width", [40, 200])
def test_names_and_lags_are_whole(width: int) -> None:
    idle = MEMBER._replace(name=f"{NAME}-2", active=frozenset(), standbys=frozenset())
    said = StringIO()
    console = Console(file=said, width=width, highlight=False)
    print_members(GroupView((MEMBER, idle), 0, ()), HOPS, {(HOPS[0].topic, 0): 12}, console)
    lines = said.getvalue().splitlines()
    assert f"{NAME} on 127.0.0.1" in lines
    unfolded = "".join(line.replace(" ", "") for line in lines)
    assert "lag12" in unfolded
    assert "lagnottoldyet" in unfolded
    assert "…" not in unfolded
    assert lines[-1].strip() == "idle"
    if width > 100:
        assert f"  {HOPS[0].topic}/0  active   lag 12" in [line.rstrip() for line in lines]


def test_an_address_of_ipv6_is_shown_as_it_is() -> None:
    said = StringIO()
    member = MEMBER._replace(host="2001:db8:0:0:0:a:b:100")
    print_members(GroupView((member,), 0, ()), HOPS, {}, Console(file=said, width=200))
    assert f"{NAME} on 2001:db8:0:0:0:a:b:100" in said.getvalue().splitlines()
