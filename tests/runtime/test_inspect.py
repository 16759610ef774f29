"""`headrace inspect` beside a sidecar that runs: its folder and its changelog say the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.contracts.errors import SettingsInvalid
from headrace.contracts.topics import changelog_topic
from headrace.services.cli.inspect import inspect
from tests.runtime.administration import administer
from tests.runtime.expected import some_records
from tests.runtime.sidecar import MakePipeline, Pipeline, record

KEPT = ("held", "ids", "stream_time_ms", "entries")


def seen(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], **options: Any
) -> list[dict[str, Any]]:
    """Return the output that is meant for machines."""
    capsys.readouterr()
    folder = pipeline.state / "one"
    inspect(
        pipeline.file,
        bootstrap_servers=pipeline.servers,
        state_folder=folder,
        as_json_=True,
        **options,
    )
    partitions: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["partitions"]
    return partitions


def kept(states: list[dict[str, Any]]) -> list[Any]:
    """Return what does not depend on which rows wait to be swept."""
    return [
        (
            state["hop"],
            state["partition"],
            state["position"],
            state["purged"],
            [{name: operator[name] for name in KEPT} for operator in state["operators"]],
        )
        for state in states
    ]


def test_the_folder_and_the_changelog_say_the_same_and_nobody_is_disturbed(
    make_pipeline: MakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = make_pipeline(
        "reorder: {grace: 5s}",
        "deduplicate: {by: id, id: header.id, interval: 20s}",
        partitions=2,
        source="idle: never",
    )
    pipeline.produce(some_records(300, 1, partitions=2))
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    committed, members = pipeline.committed(), _members(pipeline)
    from_folder: list[dict[str, Any]] = []

    def say_the_same() -> bool:
        from_folder[:] = seen(pipeline, capsys, key="k3")
        return kept(seen(pipeline, capsys, key="k3", from_changelog=True)) == kept(from_folder)

    # A second behind the last record, partitions are still told how far the others are; and a
    # changelog has a commit a moment before the folder.
    pipeline.wait_until(say_the_same, "a folder and a changelog that say the same")
    assert [(state["hop"], state["partition"]) for state in from_folder] == [
        ("source", 0),
        ("source", 1),
        ("deduplicate", 0),
        ("deduplicate", 1),
    ]
    assert all(state["operators"][0]["stream_time_ms"] > 0 for state in from_folder)
    assert sum(len(state["operators"][0]["entries"]) for state in from_folder) > 0
    (one,) = seen(pipeline, capsys, partition=1, operator="reorder", from_changelog=True)[:1]
    assert (one["hop"], one["partition"]) == ("source", 1)
    assert one["changelog_end"] >= one["changelog_position"]
    # The sidecar may commit once more after the look: it still tells partitions about each other.
    assert _members(pipeline) == members
    now = pipeline.committed()
    assert all(now[place] >= offset for place, offset in committed.items())
    pipeline.produce([record(b"k", b"more", 60_000, (), 0)])
    pipeline.wait_until_done()
    assert sidecar.stop() == 0


def _members(pipeline: Pipeline) -> list[str]:
    return administer(pipeline, lambda cluster: cluster.members(pipeline.name))


def test_a_truncated_changelog_is_shown_as_far_as_it_goes(
    make_pipeline: MakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = make_pipeline("reorder: {grace: 5s}")
    with pytest.raises(SettingsInvalid, match="has no changelog; let it run first"):
        seen(pipeline, capsys, from_changelog=True)
    pipeline.produce(some_records(100, 1))
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    (whole,) = seen(pipeline, capsys, from_changelog=True)
    assert whole["is_whole"]
    deleted = whole["purged"] + 3
    changelog = changelog_topic(pipeline.name, "state").name
    administer(pipeline, lambda cluster: cluster.delete_records(changelog, {0: deleted}))
    (state,) = seen(pipeline, capsys, from_changelog=True)
    assert not state["is_whole"]
    inspect(pipeline.file, bootstrap_servers=pipeline.servers, from_changelog=True)
    sentence = f"the changelog begins at offset {deleted}, and is needed from {whole['purged']} on"
    assert sentence in " ".join(capsys.readouterr().out.split())
