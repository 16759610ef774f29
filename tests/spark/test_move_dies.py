"""The command dies at each of its steps: one of the two checkpoints goes on, and never both."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from shutil import copytree, rmtree

import pytest
from pyspark.sql import SparkSession

from headrace.contracts.errors import StateOfOtherOptions
from headrace.spark_jobs.folder import UNFINISHED, Folder
from headrace.spark_jobs.jobs.move import move
from headrace.spark_jobs.jobs.moved import WHOLE, Moves
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.topology import Topic
from headrace.spark_jobs.versioned.tables import Plain
from tests.spark.frames import collect_stream, stream_rows, write_rows
from tests.spark.pointing import LEFT, changes

BEFORE, AFTER = 2, 3


class World:
    """An old checkpoint and a new one, and copies of both as each step of the command finds them.

    A command that dies leaves the folders as its next step would have found them.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        """Have a query write the old checkpoint."""
        self._spark = spark
        self._here, self._film = folder / "here", folder / "film"
        self.old, self.new = self._here / "old", self._here / "new"
        rows = [row for row in changes(Random(1))[0] if row[0] == LEFT][:40]
        records = stream_rows(spark, write_rows(folder / "in", rows))
        table = Topic("left", LEFT, Plain())
        collect_stream(operate(table, records, Spread(tasks=BEFORE, buckets=2)), self.old, "key")
        offsets = self.old / "offsets/0"
        head, _ = offsets.read_text().rsplit("\n", 1)
        topics = self.old / "topics/00000000"
        topics.parent.mkdir()
        topics.write_text(json.dumps({"t": "its-id"}))
        # The query has read a file; a job has read a topic.
        offsets.write_text(f"{head}\n{json.dumps({'t': {'0': len(rows)}})}")
        (offsets.parent / ".0.crc").unlink()
        self.scenes: list[tuple[str, Path]] = []

    def shoot(self, name: str) -> None:
        """Keep a copy of both."""
        scene = self._film / str(len(self.scenes))
        self.scenes.append((name, copytree(self._here, scene)))

    def set_up(self, scene: Path) -> None:
        """Have both as they were."""
        rmtree(self._here)
        copytree(scene, self._here)

    def move(self) -> None:
        """Have the command move the state."""
        move(self._spark, str(self.old), str(self.new), AFTER)

    def old_goes_on(self) -> str | None:
        """Have a job go on from the old one; what it says if it does not."""
        return self._said(lambda: Moves(self._spark, str(self.old)).stay())

    def new_goes_on(self) -> str | None:
        """Have a job look whether it begins with the rows of the new one; what it says if not."""
        said = self._said(lambda: Moves(self._spark, str(self.new)).origin())
        return said if said or self.names("new") else "there is nothing"

    def _said(self, begin: Callable[[], object]) -> str | None:
        try:
            begin()
        except StateOfOtherOptions as refused:
            return str(refused)
        return None

    def moved_rows(self) -> set[tuple[int, str, bytes]]:
        """The rows that a job on the new one begins with."""
        origin = Moves(self._spark, str(self.new)).origin()
        assert (origin.batch, origin.starts) == (1, {"t": {"0": 40}})
        assert json.loads((self.new / "topics/00000000").read_text()) == {"t": "its-id"}
        ids = [json.loads((one / "metadata").read_text()) for one in (self.old, self.new)]
        assert ids[0] == ids[1]
        rows = self._spark.read.parquet(str(origin.rows)).collect()
        return {(row.task, row.name, bytes(row.row)) for row in rows}

    def names(self, checkpoint: str) -> dict[str, bytes]:
        """All files of a checkpoint, those aside that Hadoop keeps for itself."""
        folder = self._here / checkpoint
        return {
            str(file.relative_to(folder)): file.read_bytes()
            for file in sorted(folder.rglob("*"))
            if file.is_file() and not file.name.endswith(".crc")
        }


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Both checkpoints, behind a move that each step of it was filmed of."""
    world = World(spark, tmp_path)
    with monkeypatch.context() as patch:
        film(world, patch)
        world.move()
    world.shoot("the end")
    return world


def film(world: World, patch: pytest.MonkeyPatch) -> None:
    """Keep what each step of a folder's finds, and what a half of it leaves."""
    write, rename, remove = Folder.write, Folder.rename, Folder.remove

    def filmed_write(folder: Folder, place: str, text: str) -> None:
        world.shoot(f"before {place}")
        write(folder, f"{place}{UNFINISHED}", text)
        world.shoot(f"in {place}")
        write(folder, place, text)

    def filmed_rename(folder: Folder, place: str, to: str) -> bool:
        world.shoot(f"before {place} is {to}")
        return rename(folder, place, to)

    def filmed_remove(folder: Folder, place: str) -> None:
        world.shoot(f"before {place} is removed")
        remove(folder, place)

    patch.setattr(Folder, "write", filmed_write)
    patch.setattr(Folder, "rename", filmed_rename)
    patch.setattr(Folder, "remove", filmed_remove)


def test_a_move_that_dies_or_is_overtaken_leaves_one_checkpoint_that_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = world.moved_rows()
    before = world.names("old")
    del before["move/done"]
    leftovers: dict[str, Path] = {}
    *cut_off, (_, end) = world.scenes
    for name, scene in cut_off:
        world.set_up(scene)
        refused = world.new_goes_on()
        assert refused, name
        assert world.old_goes_on() is None, name
        assert world.new_goes_on() == refused, name
        left = world.names("old")
        assert left.items() >= before.items(), name
        leftovers["".join(left.keys() - before.keys())] = scene
        if world.names("new"):
            assert refused.endswith("delete this folder, and move it once more"), name
            with pytest.raises(StateOfOtherOptions, match="name a folder that does not exist"):
                world.move()
    world.set_up(end)
    assert world.new_goes_on() is None
    assert f"was moved to `file:{world.new}`" in str(world.old_goes_on())
    assert world.new_goes_on() is None

    # A death leaves at most one more file in the old one, and another move is not stopped by it.
    nothing, unfinished = sorted(leftovers)
    assert (nothing, unfinished.endswith(UNFINISHED)) == ("", True)
    world.set_up(leftovers[unfinished])
    with monkeypatch.context() as patch:
        go_on_behind(WHOLE, world, patch)
        with pytest.raises(StateOfOtherOptions, match=r"has gone on while .* move the state once"):
            world.move()
    assert "was not finished; delete this folder" in str(world.new_goes_on())
    rmtree(world.new)
    world.move()
    assert world.moved_rows() == rows


def go_on_behind(place: str, world: World, patch: pytest.MonkeyPatch) -> None:
    """Have a job go on from the old checkpoint once a file is written."""
    write = Folder.write

    def write_late(folder: Folder, written: str, text: str) -> None:
        write(folder, written, text)
        if written == place:
            assert world.old_goes_on() is None

    patch.setattr(Folder, "write", write_late)
