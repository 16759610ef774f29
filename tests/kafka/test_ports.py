"""No two processes choose one port, however long a broker takes to listen on it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from headrace.contracts.errors import BrokerFailed
from headrace.services.broker import ports
from headrace.services.broker.ports import LOOPBACK, Blocks, free_ports


@pytest.fixture
def make_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Blocks]]:
    """Make the ports of a process; there is room for two blocks, with three to hand out in each."""
    with ExitStack() as stack:

        def make() -> Blocks:
            made = Blocks()
            stack.callback(made.give_back)
            return made

        # All behind the first port of a block of ours is nobody else's.
        first = make().take()
        monkeypatch.setattr(ports, "_BLOCK_PORTS", 4)
        monkeypatch.setattr(ports, "_FIRST", first)
        monkeypatch.setattr(ports, "_LAST", first + 9)
        yield make


def test_two_processes_take_ports_of_blocks_of_their_own(
    make_blocks: Callable[[], Blocks],
) -> None:
    ours, theirs = make_blocks(), make_blocks()
    taken = [each.take() for _ in range(3) for each in (ours, theirs)]
    assert len(set(taken)) == 6
    with pytest.raises(BrokerFailed, match=r"No port is free on 127\.0\.0\.1 between"):
        make_blocks().take()


def test_each_port_comes_once_before_any_comes_again(make_blocks: Callable[[], Blocks]) -> None:
    blocks = make_blocks()
    taken = [blocks.take() for _ in range(6)]
    assert len(set(taken)) == 6
    with socket.socket() as listener:
        listener.bind((LOOPBACK, taken[0]))
        assert [blocks.take() for _ in range(5)] == taken[1:]


def test_blocks_that_were_given_back_are_free(make_blocks: Callable[[], Blocks]) -> None:
    blocks = make_blocks()
    taken = {blocks.take() for _ in range(6)}
    blocks.give_back()
    another = make_blocks()
    assert {another.take() for _ in range(6)} == taken


def test_the_blocks_of_a_process_are_free_once_it_has_ended() -> None:
    code = "from headrace.services.broker.ports import free_ports; print(*free_ports(2))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    one, another = map(int, said.stdout.split())
    assert another == one + 1
    assert not {one, another} & set(free_ports(3))
