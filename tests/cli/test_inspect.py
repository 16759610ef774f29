"""`headrace inspect` shows state that the operators wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.contracts.errors import SettingsInvalid, StateLayoutNewer, StateOfAnotherPipeline
from headrace.contracts.record import Headers, Record
from headrace.contracts.window import WindowBounds, window_header, windowed_key
from headrace.services.cli.inspect import inspect
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.operators.chain import Chain
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.operator import Batch
from headrace.services.state.changelog import ABOUT, put_purged
from headrace.services.state.partition import PartitionState
from headrace.services.state.rocks import RocksMemory
from headrace.services.state.stamps import stamp_of

START_MS = 1_700_000_000_000
MEMORY = RocksMemory(8 << 20)
WINDOW = WindowBounds("tumbling", START_MS, START_MS + 10_000)
TUMBLING = "window: {kind: tumbling, size: 10s, grace: 5s}"
SLIDING = "window: {kind: sliding, difference: 2s, grace: 5s}"
NO_TEXT = ("values", 3), [{"what": "value", "key": {"hex": "ff"}, "value": "\x00"}]


class Pipeline:
    """A pipeline's file, and the state that it leaves."""

    def __init__(self, folder: Path, *operators: str, name: str = "clicks") -> None:
        """Write the file."""
        self.file = folder / f"{name}.yaml"
        lines = "".join(f"  - {operator}\n" for operator in operators)
        self.file.write_text(
            f"pipeline: {name}\nsource: {{topic: raw}}\nsink: {{topic: cleaned}}\n"
            f"operators:\n{lines}"
        )
        self.spec = load_pipeline(self.file)
        self.folder = folder / "state"

    def open(self, partition: int = 0) -> PartitionState:
        """As a task opens it."""
        path = self.folder / self.spec.pipeline / "state" / str(partition)
        return PartitionState(path, self.spec.pipeline, MEMORY, 1)

    def take(self, records: list[Record], partition: int = 0) -> PartitionState:
        """As a task takes records, and commits; the state is left open."""
        state, hop = self.open(partition), self.spec.hops()[0]
        state.stamp_with(stamp_of(self.spec, hop))
        chain = Chain(hop.operators, state.overlay.view)
        chain.process(Batch.of(records))
        chain.save()
        put_purged(state.overlay.view(ABOUT), 12)
        state.reach(len(records), chain.lateness.time_ms)
        state.commit(40, 1)
        return state

    def leave(self, records: list[Record], partition: int = 0) -> None:
        """The same, and it is closed."""
        self.take(records, partition).close()

    def seen(self, capsys: pytest.CaptureFixture[str], **options: Any) -> list[dict[str, Any]]:
        """The partitions, as machines see them."""
        inspect(self.file, state_folder=self.folder, as_json_=True, **options)
        partitions: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["partitions"]
        return partitions


def record(
    key: bytes | None, value: bytes | None, at_ms: int, offset: int, headers: Headers = ()
) -> Record:
    """A record of the source, so long after the start."""
    return Record(key, value, START_MS + at_ms, (("id", value), *headers), "raw", 0, offset)


STREAM = [
    record(b"a", b"1", 0, 0),
    record(b"a", b"2", 6_000, 1),
    record(b"b", b"3", 7_000, 2),
    record(b"a", b"2", 7_500, 3),
    record(b"\xff", b"\x00", 8_000, 4),
    record(b"a", b"4", 9_000, 5),
]


def test_people_see_where_it_is_and_what_every_operator_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    pipeline = Pipeline(
        tmp_path,
        "filter: {where: 'header.id != \"9\"'}",
        "reorder: {grace: 2s, name: order}",
        "deduplicate: {by: key+id, id: header.id, interval: 5s}",
    )
    pipeline.leave(STREAM)
    inspect(pipeline.file, state_folder=pipeline.folder, key="a")
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[4].startswith("  on disk      ")
    del lines[4]
    assert lines == [
        "source/0",
        "  position     6",
        "  stream time  2023-11-14 22:13:29.000",
        "  changelog    up to offset 40, purged before 12",
        "  filter       filter, keeps nothing",
        "  order        reorder, 3 held in 4 rows",
        "               from 2023-11-14 22:13:27.500 to 2023-11-14 22:13:29.000",
        "               stream time 2023-11-14 22:13:29.000",
        "  deduplicate  deduplicate, 2 ids in 4 rows",
        "               from 2023-11-14 22:13:26.000 to 2023-11-14 22:13:27.000",
        "               stream time 2023-11-14 22:13:27.000",
        "  order held of key a, timestamp 2023-11-14 22:13:27.500, offset 3, value 2",
        "  order held of key a, timestamp 2023-11-14 22:13:29.000, offset 5, value 4",
        "  deduplicate id of key a, id 2, timestamp 2023-11-14 22:13:26.000, offset 1",
        "",
    ]


def at(at_ms: int) -> int:
    """A time so long after the start."""
    return START_MS + at_ms


def test_machines_see_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = Pipeline(tmp_path, "reorder: {grace: 2s}", "table: {}")
    pipeline.leave(STREAM)
    (state,) = pipeline.seen(capsys, operator="reorder")
    assert state.pop("size_bytes") > 0
    assert state == {
        "hop": "source",
        "partition": 0,
        "position": 6,
        "stream_time_ms": at(9_000),
        "changelog_position": 40,
        "changelog_first": None,
        "changelog_end": None,
        "restored_at": None,
        "purged": 12,
        "is_whole": True,
        "operators": [
            {
                "operator": "reorder",
                "kind": "reorder",
                "stream_time_ms": at(9_000),
                "rows": 4,
                "held": 3,
                "ids": None,
                "windows": None,
                "values": None,
                "first_ms": at(7_500),
                "last_ms": at(9_000),
                "entries": [],
            }
        ],
    }


def window(start_ms: int, end_ms: int, **result: Any) -> dict[str, Any]:
    """A window of the key `a`."""
    bounds = {"start_ms": at(start_ms), "end_ms": at(end_ms)}
    return {"what": "window", "key": "a", **bounds, **result}


def identity(at_ms: int, offset: int, key: str | None = "a", **more: str) -> dict[str, Any]:
    """A known id."""
    return {"what": "id", "key": key, "timestamp_ms": at(at_ms), "offset": offset, **more}


@pytest.mark.parametrize(
    ("operator", "key", "count", "entries"),
    [
        ("deduplicate: {interval: 5s}", "a", ("ids", 3), [identity(6_000, 1)]),
        (
            "deduplicate: {by: key+id, id: header.id, interval: 5s}",
            "a",
            ("ids", 4),
            [identity(6_000, 1, id="2"), identity(9_000, 5, id="4")],
        ),
        ("distinct: {" + TUMBLING + "}", "a", ("windows", 3), [window(0, 10_000)]),
        (
            "distinct: {window: {kind: session, gap: 1s, grace: 5s}}",
            "a",
            ("windows", 5),
            [window(6_000, 6_000), window(7_500, 7_500), window(9_000, 9_000)],
        ),
        (
            "aggregate: {function: count, " + TUMBLING + "}",
            "a",
            ("windows", 3),
            [window(0, 10_000, count=4)],
        ),
        (
            "aggregate: {function: last, window: {kind: session, gap: 2s, grace: 5s}}",
            "a",
            ("windows", 3),
            [window(6_000, 9_000, value="4")],
        ),
        (
            "aggregate: {function: count, " + SLIDING + "}",
            "a",
            ("windows", 7),
            [
                window(4_000, 6_000, count=1),
                window(5_500, 7_500, count=2),
                window(6_001, 8_001, count=1),
                window(7_000, 9_000, count=2),
                window(7_501, 9_501, count=1),
            ],
        ),
        (
            "aggregate: {function: sum}",
            "a",
            ("windows", 2),
            [{"what": "window", "key": "a", "value": "9"}],
        ),
        ("table: {}", "a", ("values", 3), [{"what": "value", "key": "a", "value": "4"}]),
        ("table: {}", "0xff", *NO_TEXT),
        ("table: {}", "\udcff", *NO_TEXT),  # as Python hands on bytes of a command line
        (
            "suppress: {until: time-limit, limit: 2s}",
            "a",
            ("held", 2),
            [
                {
                    "what": "held",
                    "key": "a",
                    "timestamp_ms": at(9_000),
                    "waits_from_ms": at(7_500),
                    "offset": 5,
                    "value": "4",
                }
            ],
        ),
    ],
)
def test_inspect_shows_what_is_kept_of_a_key(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    operator: str,
    key: str,
    count: tuple[str, int],
    entries: list[dict[str, Any]],
) -> None:
    pipeline = Pipeline(tmp_path, operator)
    pipeline.leave(STREAM)
    (state,) = pipeline.seen(capsys, key=key)
    (found,) = state["operators"]
    assert found["entries"] == entries
    name, number = count
    assert found[name] == number


def test_windows_of_a_key_are_found_by_the_plain_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = Pipeline(tmp_path, "suppress: {until: window-closes, " + TUMBLING + "}")
    result = record(b"a", b"5", 9_000, 3, (window_header(WINDOW),))
    pipeline.leave([result._replace(key=windowed_key(b"a", WINDOW))])
    (state,) = pipeline.seen(capsys, key="a")
    (entry,) = state["operators"][0]["entries"]
    assert entry == {
        "what": "held",
        "key": "a",
        "timestamp_ms": at(9_000),
        "waits_from_ms": at(10_000),
        "offset": 3,
        "value": "5",
        "start_ms": at(0),
        "end_ms": at(10_000),
    }


def test_an_id_is_found_across_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = Pipeline(tmp_path, "deduplicate: {by: id, id: header.id, interval: 5s}")
    hop = pipeline.spec.hops()[1]
    path = pipeline.folder / "clicks" / hop.name / "0"
    state = PartitionState(path, "clicks", MEMORY, 1)
    state.stamp_with(stamp_of(pipeline.spec, hop))
    chain = Chain(hop.operators, state.overlay.view)
    chain.process(Batch.of(STREAM))
    chain.save()
    state.reach(6, at(9_000))
    state.commit(40, 1)
    state.close()
    (seen,) = pipeline.seen(capsys, key="2")
    assert seen["hop"] == "deduplicate"
    assert seen["operators"][0]["entries"] == [identity(6_000, 1, None, id="2")]


def test_records_that_a_merge_holds_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = Pipeline(
        tmp_path,
        "deduplicate: {by: id, id: header.id, interval: 5s}",
        "aggregate: {function: count}",
    )
    hop = pipeline.spec.hops()[1]
    state = PartitionState(pipeline.folder / "clicks" / hop.name / "0", "clicks", MEMORY, 1)
    state.stamp_with(stamp_of(pipeline.spec, hop))
    view = state.overlay.view
    # Two source partitions are waited for, and neither has said how far it is.
    chain = Chain(hop.operators, view, lanes=Lanes(view(ABOUT), range(2)))
    chain.process(Batch.of(STREAM))
    chain.save()
    state.commit(40, 1)
    state.close()
    (seen,) = pipeline.seen(capsys, key="b")
    by_name = {operator["operator"]: operator for operator in seen["operators"]}
    assert list(by_name) == ["deduplicate", "deduplicate-merge", "aggregate"]
    merge = by_name["deduplicate-merge"]
    assert (merge["held"], [entry["value"] for entry in merge["entries"]]) == (5, ["3"])
    (seen,) = pipeline.seen(capsys, operator="deduplicate-merge")
    assert [operator["held"] for operator in seen["operators"]] == [5]


def test_a_file_that_a_running_instance_deletes_meanwhile_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = Pipeline(tmp_path, "reorder: {grace: 2s}")
    pipeline.leave(STREAM)
    (state,) = pipeline.seen(capsys)
    # It is listed, and gone when it is asked for its size.
    gone = pipeline.folder / "clicks" / "state" / "0" / "LOG.old.1"
    gone.symlink_to(tmp_path / "gone")
    assert pipeline.seen(capsys) == [state]


def test_rows_of_a_newer_program_are_refused(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, "reorder: {grace: 2s}")
    state = pipeline.take(STREAM)
    stamp = stamp_of(pipeline.spec, pipeline.spec.hops()[0])
    newer = [{"kind": "reshuffle", "name": "reshuffle", "store": "reshuffle"}]
    state.stamp_with(stamp._replace(layout=99, operators=newer))
    state.commit(41, 1)
    state.close()
    with pytest.raises(StateLayoutNewer, match="upgrade headrace"):
        inspect(pipeline.file, state_folder=pipeline.folder)


def test_a_running_instance_is_looked_at_and_not_disturbed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = Pipeline(tmp_path, "reorder: {grace: 2s}")
    running = pipeline.take(STREAM, partition=3)
    pipeline.leave(STREAM[:1], partition=1)
    before = files_in(pipeline.folder)
    one, three = pipeline.seen(capsys)
    assert (one["partition"], one["position"]) == (1, 1)
    assert (three["partition"], three["position"]) == (3, 6)
    assert three["operators"][0]["held"] == 3
    (three,) = pipeline.seen(capsys, partition=3)
    assert three["partition"] == 3
    assert files_in(pipeline.folder) == before
    running.close()


def files_in(folder: Path) -> dict[Path, tuple[int, int]]:
    """Sizes and times; a thread of RocksDB writes to its `LOG` now and then."""
    stats = {one: one.stat() for one in folder.rglob("*") if one.is_file() and one.name != "LOG"}
    return {one: (found.st_size, found.st_mtime_ns) for one, found in stats.items()}


def test_state_that_nobody_has_committed_to_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = Pipeline(tmp_path, "reorder: {grace: 2s}")
    pipeline.open().close()
    (state,) = pipeline.seen(capsys)
    assert state["position"] is None
    assert state["operators"] == []
    inspect(pipeline.file, state_folder=pipeline.folder)
    assert "nothing is committed yet" in capsys.readouterr().out


def test_inspect_says_in_a_sentence_what_it_cannot_show(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, "reorder: {grace: 2s}")
    with pytest.raises(SettingsInvalid) as nothing:
        inspect(pipeline.file, state_folder=pipeline.folder)
    assert str(nothing.value) == (
        f"there is no state of clicks in {pipeline.folder}; name the folder with --state-folder,"
        " or look at the changelogs with --from-changelog"
    )
    pipeline.leave(STREAM)
    with pytest.raises(SettingsInvalid, match="no state of partition 7 of clicks"):
        inspect(pipeline.file, state_folder=pipeline.folder, partition=7)
    with pytest.raises(SettingsInvalid, match="no operator is called `x`; there are reorder"):
        inspect(pipeline.file, state_folder=pipeline.folder, operator="x")
    with pytest.raises(SettingsInvalid, match="`0xq` begins as hexadecimal and is none"):
        inspect(pipeline.file, state_folder=pipeline.folder, key="0xq")
    (pipeline.folder / "clicks").rename(pipeline.folder / "views")
    views = Pipeline(tmp_path, "reorder: {grace: 2s}", name="views")
    with pytest.raises(StateOfAnotherPipeline, match="belongs to pipeline `clicks`"):
        inspect(views.file, state_folder=views.folder)
