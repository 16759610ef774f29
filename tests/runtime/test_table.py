"""Databases of partitions: whoever opens one waits for whoever is still at its files."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import faust
import pytest

from headrace.services.runtime.task.table import StateTable
from headrace.services.state.partition import PartitionState
from headrace.services.state.rocks import RocksMemory

PATIENCE_S = 120.0


class Gate:
    """Stands before a call in a thread, until it is opened."""

    def __init__(self) -> None:
        """Let nobody through yet."""
        self.is_reached, self.is_open = threading.Event(), threading.Event()

    def wait(self) -> None:
        """Wait until it is open."""
        self.is_reached.set()
        assert self.is_open.wait(PATIENCE_S)

    async def reached(self) -> None:
        """Wait until somebody stands before it."""
        assert await asyncio.to_thread(self.is_reached.wait, PATIENCE_S)


def at_opening(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Behind the opening of a database, once."""
    gate, open_now = Gate(), PartitionState._open  # noqa: SLF001

    def open_late(state: PartitionState) -> None:
        monkeypatch.setattr(PartitionState, "_open", open_now)
        open_now(state)
        gate.wait()

    monkeypatch.setattr(PartitionState, "_open", open_late)
    return gate


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Before a database is closed, and before a folder is deleted."""
    gate, close, delete = Gate(), PartitionState.close, shutil.rmtree

    def close_late(state: PartitionState) -> None:
        gate.wait()
        close(state)

    def delete_late(folder: Path) -> None:
        gate.wait()
        delete(folder)

    monkeypatch.setattr(PartitionState, "close", close_late)
    monkeypatch.setattr(shutil, "rmtree", delete_late)
    return gate


def table(folder: Path) -> StateTable:
    """A table whose databases lie in this folder."""
    app = faust.App("clicks", broker="kafka://127.0.0.1:1", store="memory://")
    return StateTable(app, "deduplicate", folder, RocksMemory(16 << 20))


async def cancelled(task: asyncio.Task[None] | asyncio.Task[PartitionState]) -> None:
    """Cancel a task, and wait until it has ended."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def open_again(databases: StateTable, gate: Gate) -> None:
    """Open a database that is busy, while the gate opens, and close it."""
    again = asyncio.create_task(databases.open(0, 0))
    await asyncio.sleep(0)
    gate.is_open.set()
    await again
    await databases.close(0)


def test_a_database_is_opened_behind_its_close_whoever_gave_up_before(
    tmp_path: Path, gate: Gate
) -> None:
    async def live() -> None:
        databases = table(tmp_path)
        await databases.open(0, 0)
        closing = asyncio.create_task(databases.close(0))
        await gate.reached()
        await cancelled(closing)
        opening = asyncio.create_task(databases.open(0, 0))
        await asyncio.sleep(0)
        await cancelled(opening)
        await open_again(databases, gate)

    asyncio.run(live())


def test_a_task_that_gives_up_for_the_second_time_leaves_no_database_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = at_opening(monkeypatch)

    async def live() -> None:
        databases = table(tmp_path)
        opening = asyncio.create_task(databases.open(0, 0))
        await gate.reached()
        opening.cancel()
        await asyncio.sleep(0)
        await cancelled(opening)
        await open_again(databases, gate)

    asyncio.run(live())


def test_a_database_is_opened_once_the_one_before_is_deleted(tmp_path: Path, gate: Gate) -> None:
    folder = tmp_path / "0"
    folder.mkdir()
    (folder / "of the one before").touch()

    async def live() -> None:
        databases = table(tmp_path)
        discarding = asyncio.create_task(databases.discard(0))
        await gate.reached()
        await cancelled(discarding)
        opening = asyncio.create_task(databases.open(0, 0))
        await asyncio.sleep(0)
        gate.is_open.set()
        await opening
        assert folder.exists()
        assert not (folder / "of the one before").exists()
        await databases.close(0)

    asyncio.run(live())


@pytest.mark.parametrize(("now", "is_the_same"), [("1", True), (None, True), ("2", False)])
def test_a_copy_that_is_handed_over_is_of_the_changelog_that_there_is(
    tmp_path: Path, now: str | None, *, is_the_same: bool
) -> None:
    async def live() -> None:
        databases = table(tmp_path)
        copy = await databases.open(0, 0, "1")
        copy.reach(50, 9_000)
        copy.commit(8, 0)
        databases.park(0)
        state = await databases.open(0, 0, now)
        assert (state is copy) == is_the_same
        assert state.position == (50 if is_the_same else None)
        assert (state.rebuilt_because is None) == is_the_same
        await databases.close(0)

    asyncio.run(live())
