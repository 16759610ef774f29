"""State on a real disk: what is said when it is damaged, held or not ours, and what survives."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import truncate
from pathlib import Path
from random import Random
from shutil import copytree

import pytest

from headrace.contracts.errors import (
    HeadraceError,
    StateCorrupt,
    StateLayoutNewer,
    StateLocked,
    StateOfAnotherPipeline,
    StateUnavailable,
)
from headrace.services.state import layout
from headrace.services.state.overlay import Overlay
from headrace.services.state.rocks import RocksMemory, RocksStore

ROOT = Path(__file__).parents[2]
ALL = (b"", b"\xff")
MIB = 1 << 20
ROWS = {b"%04d" % number: b"row %d " % number * 20 for number in range(300)}
DAMAGES = 60

OPEN = """
import sys
from pathlib import Path
from headrace.services.state.rocks import RocksMemory, RocksStore
store = RocksStore(Path(sys.argv[1]), RocksMemory(8 << 20))
"""
HOLD = OPEN + "print('open', flush=True)\nsys.stdin.read()"
HOLD_CLOSED = OPEN + "store.close()\nprint('closed', flush=True)\nsys.stdin.read()"
WRITE_ON = (
    OPEN
    + """
number = 0
while True:
    rows = {b"%d" % row: b"%d" % number * 100 for row in range(1_000)}
    print("begun", number, flush=True)
    store.write([(b"5", b"6")], {**rows, b"position": b"%d" % number})
    print("committed", number, flush=True)
    number += 1
"""
)
STALL = (
    OPEN
    + """
from threading import Event, Thread
row = {b"row": b"old"}
store.write([], row)
store.flush()
# One file is too many from now on, and nobody merges it.
options = {"level0_file_num_compaction_trigger": "100"}
for name in ("slowdown", "stop"):
    options[f"level0_{name}_writes_trigger"] = "1"
store._database.set_options(options)
writer = Thread(target=store.write, args=([], {b"row": b"new"}))
writer.start()
for _ in range(20):
    Event().wait(0.01)
print("runs on", store.get_many([b"row"]), writer.is_alive(), flush=True)
store._database.set_options({name: "1000" for name in options})
writer.join()
print("written", store.get_many([b"row"]), flush=True)
store.close()
"""
)
WITHIN_S = 60


def opened(path: Path) -> RocksStore:
    """A database with memory of its own: nothing that is damaged on disk stands in a cache."""
    return RocksStore(path, RocksMemory(8 * MIB))


@contextmanager
def another_process(code: str, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs `code` over a folder until the block ends."""
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[bytes]) -> str:
    """The next line that a process prints; empty where it ended."""
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The folder of a database with `ROWS`, all of them in one file."""
    folder = tmp_path / "state"
    store = opened(folder)
    store.write([], dict(ROWS))
    store.flush()
    store.close()
    return folder


def test_a_newer_layout_is_refused_with_what_to_do(tmp_path: Path) -> None:
    newer = layout.LAYOUT_VERSION + 1
    store = opened(tmp_path / "state")
    Overlay(store, "clicks").commit({})
    store.write([], {layout.LAYOUT_KEY: layout.pack_version(newer)})
    store.close()
    again = opened(tmp_path / "state")
    with pytest.raises(StateLayoutNewer) as refused:
        Overlay(again, "clicks")
    again.close()
    assert str(refused.value) == (
        f"this state has layout {newer}, this program reads up to {layout.LAYOUT_VERSION}; upgrade"
        " headrace, or delete the state folder to rebuild it from the changelog"
    )
    assert refused.value.exit_code == 4


def test_the_state_of_another_pipeline_is_refused_with_what_to_do(tmp_path: Path) -> None:
    store = opened(tmp_path / "state")
    Overlay(store, "clicks").commit({})
    with pytest.raises(StateOfAnotherPipeline) as refused:
        Overlay(store, "views")
    store.close()
    assert str(refused.value) == (
        "this state belongs to pipeline `clicks`, not `views`; give each pipeline a state folder"
        " of its own"
    )
    assert refused.value.exit_code == 4


def test_a_folder_that_another_process_holds_is_refused_with_what_to_do(path: Path) -> None:
    with another_process(HOLD, path) as process:
        assert line_of(process) == "open"
        with pytest.raises(StateLocked) as refused:
            opened(path)
    assert str(refused.value) == (
        f"the state in {path} is held by another process; stop it, or give this one another state"
        " folder"
    )
    assert refused.value.exit_code == 4


def test_a_folder_that_was_closed_is_free_while_its_process_lives(path: Path) -> None:
    with another_process(HOLD_CLOSED, path) as process:
        assert line_of(process) == "closed"
        store = opened(path)
        assert process.poll() is None
        assert dict(store.range(*ALL)) == ROWS
        store.close()


def test_a_folder_that_we_closed_is_free_for_another_process(path: Path) -> None:
    opened(path).close()
    with another_process(HOLD, path) as process:
        assert line_of(process) == "open"


def test_a_folder_is_not_opened_twice(path: Path) -> None:
    store = opened(path)
    with pytest.raises(StateLocked, match="give this one another state folder"):
        opened(path)
    assert dict(store.range(*ALL)) == ROWS
    store.close()
    opened(path).close()


def test_a_path_that_is_a_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("no database")
    with pytest.raises(StateUnavailable, match=f"the state in {path} cannot be .* check that"):
        opened(path)
    assert path.read_text() == "no database"


def flip(content: bytes, place: int) -> bytes:
    """The same bytes with one bit changed."""
    return content[:place] + bytes([content[place] ^ 0x40]) + content[place + 1 :]


def said(read: Callable[[], object]) -> object:
    """Return a reader's rows, or the class of the error that it raises."""
    try:
        return read()
    except HeadraceError as error:
        return type(error)


def test_a_damaged_block_is_never_the_end_of_a_range(path: Path) -> None:
    (file,) = path.glob("*.sst")
    whole = file.read_bytes()
    answers: list[object] = []
    for place in range(0, len(whole), len(whole) // DAMAGES):
        file.write_bytes(flip(whole, place))
        try:
            store = opened(path)
        except StateCorrupt:
            answers.append("not opened")
            continue
        answers.append(said(lambda store=store: dict(store.range(*ALL)) == ROWS))  # type: ignore[misc]
        by_key = said(lambda store=store: store.get_many(list(ROWS)))  # type: ignore[misc]
        assert by_key in (StateCorrupt, list(ROWS.values()))
        store.close()
    assert False not in answers, "a range ended early, and nobody heard of it"
    assert set(answers) <= {True, "not opened", StateCorrupt}
    assert answers.count(StateCorrupt) > DAMAGES // 2


def test_a_damaged_row_is_refused_by_get_many_and_by_range(path: Path) -> None:
    (file,) = path.glob("*.sst")
    file.write_bytes(flip(file.read_bytes(), 100))
    store = opened(path)
    with pytest.raises(StateCorrupt, match="is rebuilt from the changelog") as damaged:
        store.get_many([b"0000"])
    with pytest.raises(StateCorrupt, match="is rebuilt from the changelog"):
        list(store.range(*ALL))
    store.close()
    assert str(path) in str(damaged.value)
    assert damaged.value.exit_code == 4


@pytest.mark.parametrize("left", [0, 1 / 2])
def test_a_file_cut_short_is_damage(path: Path, left: float) -> None:
    (file,) = path.glob("*.sst")
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * left)])
    with pytest.raises(StateCorrupt, match="delete the folder"):
        opened(path)


def test_a_missing_file_is_damage(path: Path) -> None:
    (file,) = path.glob("*.sst")
    file.unlink()
    with pytest.raises(StateCorrupt, match="delete the folder"):
        opened(path)


@pytest.mark.parametrize("content", [b"", b"garbage", b"MANIFEST-"])
def test_a_damaged_current_is_damage(path: Path, content: bytes) -> None:
    (path / "CURRENT").write_bytes(content)
    with pytest.raises(StateCorrupt, match="delete the folder"):
        opened(path)


def test_a_current_that_names_no_manifest_is_damage(path: Path) -> None:
    (path / "CURRENT").write_bytes(b"MANIFEST-999999\n")
    with pytest.raises(StateCorrupt, match="delete the folder"):
        opened(path)


@pytest.mark.parametrize("kept", [0, 1, 10, 40, 80, 99])
def test_a_manifest_cut_short_is_damage_or_an_earlier_state_whole(path: Path, kept: int) -> None:
    (manifest,) = path.glob("MANIFEST-*")
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[: len(whole) * kept // 100])
    try:
        store = opened(path)
    except StateCorrupt:
        return
    # An earlier state has earlier positions, from which the changelog is read again.
    assert dict(store.range(*ALL)) in ({}, ROWS)
    store.close()


def test_a_folder_whose_name_has_a_lock_in_it_is_not_locked(tmp_path: Path) -> None:
    path = tmp_path / "o-clock" / "state"
    opened(path).close()
    (path / "CURRENT").write_bytes(b"MANIFEST-999999\n")
    with pytest.raises(HeadraceError) as refused:
        opened(path)
    assert not isinstance(refused.value, StateLocked)


def test_a_log_cut_short_loses_the_latest_batches_whole(tmp_path: Path) -> None:
    store = opened(tmp_path / "state")
    for number in range(5):
        store.write([], {b"%d" % row: b"%d" % number * 100 for row in range(50)})
    (log,) = (tmp_path / "state").glob("*.log")
    length = log.stat().st_size
    left = []
    for kept in range(0, length + 1, length // 40):
        # The files as they are now: closing would leave nothing in the log.
        copy = tmp_path / f"copy-{kept}"
        copytree(tmp_path / "state", copy)
        truncate(copy / log.name, kept)
        cut = opened(copy)
        rows = [row for _, row in cut.range(*ALL)]
        cut.close()
        assert len(rows) in {0, 50}
        assert len(set(rows)) <= 1
        left.append(rows[0][:1] if rows else b"")
    store.close()
    assert left == sorted(left)
    assert set(left) >= {b"", b"0", b"1", b"2", b"3"}


@pytest.mark.parametrize("last", [0, 1, 20, 50])
def test_a_killed_process_loses_nothing_that_it_committed(tmp_path: Path, last: int) -> None:
    path = tmp_path / "state"
    with another_process(WRITE_ON, path) as process:
        line = ""
        while line != f"begun {last}":
            line = line_of(process)
            assert line, "it ended by itself"
        # The best moment to lose half of a batch is while it is written.
        process.send_signal(signal.SIGKILL)
        assert process.stdout is not None
        rest = process.stdout.read().decode().splitlines()
    assert process.returncode == -signal.SIGKILL
    committed = [last - 1, *(int(line.split()[1]) for line in rest if line.startswith("committed"))]
    store = opened(path)
    rows = dict(store.range(*ALL))
    store.close()
    position = int(rows.pop(b"position", b"-1"))
    # It may have died between a write and the line about it.
    assert position in {committed[-1], committed[-1] + 1}
    assert set(rows.values()) == ({b"%d" % position * 100} if rows else set())
    assert len(rows) == (0 if position == -1 else 1_000)


def test_a_write_that_stalls_lets_the_interpreter_go(path: Path) -> None:
    # While RocksDB itself waits, nothing of the process runs; only from outside it can be ended.
    done = subprocess.run(
        [sys.executable, "-c", STALL, path],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=WITHIN_S,
        check=True,
    )
    assert done.stdout.splitlines() == ["runs on [b'old'] True", "written [b'new']"]


def test_all_databases_together_stay_within_their_memory(tmp_path: Path) -> None:
    memory = RocksMemory(8 * MIB)
    chance = Random(7)
    stores = [RocksStore(tmp_path / str(number), memory) for number in range(4)]
    while_writing = []
    for number in range(56):
        rows = {b"%03d-%03d" % (number, row): chance.randbytes(1 << 12) for row in range(256)}
        stores[number % 4].write([], dict(rows))
        while_writing.append(memory.usage_bytes())
    # Writers are not made to wait for the disk, so they may be ahead of it for a moment.
    assert 1 * MIB < max(while_writing) < 32 * MIB
    for store in stores:
        store.flush()
    for store in stores:
        assert sum(len(row) for _, row in store.range(*ALL)) == 14 * MIB
        assert 1 * MIB < memory.usage_bytes() < 10 * MIB
    for store in stores:
        store.close()


def test_a_database_that_is_opened_again_shares_the_memory_too(tmp_path: Path) -> None:
    memory = RocksMemory(64 * MIB)
    store = RocksStore(tmp_path / "state", memory)
    keys = [b"%08d" % number for number in range(30_000)]
    random = Random(1)
    store.write([], {key: random.randbytes(1_000) for key in keys})
    store.flush()
    store.close()
    store = RocksStore(tmp_path / "state", memory)
    store.get_many(keys)
    # RocksDB's own cache would hold 8 MiB, and this one none of it.
    assert memory.usage_bytes() > 20 * MIB
    store.close()
