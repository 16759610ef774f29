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
from headrace.services.broker.ports import LOOPBACK, Blocks


@pytest.fixture
def first() -> Iterator[int]:
    """Return the first of nine free ports, in a block of this process.

    A broker that has just stopped leaves ports that cannot be bound for a minute.
    """
    with ExitStack() as stack:
        while True:
            blocks = Blocks()
            stack.callback(blocks.give_back)
            first = blocks.take()
            if all(ports.is_free(port) for port in range(first, first + 9)):
                break
        yield first


@pytest.fixture
def make_blocks(first: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Blocks]]:
    """Make the ports of a process; there is room for two blocks, with three to hand out in each."""
    monkeypatch.setattr(ports, "_BLOCK_PORTS", 4)
    monkeypatch.setattr(ports, "_FIRST", first)
    monkeypatch.setattr(ports, "_LAST", first + 9)
    with ExitStack() as stack:

        def make() -> Blocks:
            made = Blocks()
            stack.callback(made.give_back)
            return made

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


def test_the_blocks_of_a_process_are_free_once_it_has_ended(
    first: int, make_blocks: Callable[[], Blocks]
) -> None:
    code = f"""
from headrace.services.broker import ports
ports._BLOCK_PORTS, ports._FIRST, ports._LAST = 4, {first}, {first + 9}
print(*ports.free_ports(6), flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        taken = {int(port) for port in process.stdout.readline().split()}
        with pytest.raises(BrokerFailed, match="No port is free"):
            make_blocks().take()
        process.communicate("\n")
    blocks = make_blocks()
    assert {blocks.take() for _ in range(6)} == taken
