"""State that a sidecar must not go on from: exit code 4, one sentence, and nothing was written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.services.state.layout import ONE_LENGTH_VERSION, OPERATORS_VERSION
from headrace.services.state.rocks import RocksMemory, RocksStore
from tests.runtime.administration import administer
from tests.runtime.expected import assert_cleaned, some_records
from tests.runtime.sidecar import MakePipeline, Pipeline, Sidecar

REORDER = "reorder: {grace: 5s}"
DEDUPLICATE = "deduplicate: {by: key+id, id: header.id, interval: 20s}"
OTHER_GRACE = "reorder: {grace: 7s}"
OTHER_ID = "deduplicate: {by: key+id, id: header.other, interval: 20s}"


def used(make_pipeline: MakePipeline) -> Pipeline:
    """A pipeline that has run and has state."""
    pipeline = make_pipeline(REORDER, DEDUPLICATE)
    use(pipeline)
    return pipeline


def use(pipeline: Pipeline) -> None:
    """Let it run for a while."""
    pipeline.produce(some_records(200, 1))
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0


def go_on(pipeline: Pipeline) -> None:
    """It runs again, over more records, and has missed nothing."""
    pipeline.produce(some_records(200, 2, start_ms=8_000))
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert_cleaned(pipeline)


def refusal(pipeline: Pipeline) -> str:
    """The sentence with which it ends; it ends the same way again, and has written nothing."""
    before = pipeline.clients.end_offsets(pipeline.sink), pipeline.committed()
    first, second = _ends(pipeline.start()), _ends(pipeline.start())
    assert first == second
    assert (pipeline.clients.end_offsets(pipeline.sink), pipeline.committed()) == before
    return first


def _ends(sidecar: Sidecar) -> str:
    assert sidecar.wait() == 4, sidecar.log
    assert "Traceback" not in sidecar.log
    return sidecar.last_words


def test_a_changelog_that_lost_records_is_refused_where_no_state_has_them(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(REORDER, DEDUPLICATE)
    changelog = f"{pipeline.name}-state-changelog"
    # From a topic that is compacted alone nobody may delete records.
    policy = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"}
    pipeline.clients.make_topic(changelog, 1, policy)
    use(pipeline)
    administer(pipeline, lambda cluster: cluster.delete_records(changelog, {0: 10}))
    go_on(pipeline)
    pipeline.lose_state()
    assert refusal(pipeline) == (
        f"the changelog {changelog}/0 was truncated or made anew: its records before offset 10 are"
        " gone, and the state needs them from 0; bring the topic back, or begin anew with"
        " `headrace reset`"
    )


def test_a_changelog_that_was_made_anew_is_refused_with_the_folder_and_without(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = used(make_pipeline)
    changelog = f"{pipeline.name}-state-changelog"
    state = pipeline.folder_of()
    kept = shutil.copytree(state, pipeline.folder / "kept")
    sentence = (
        f"this pipeline has reached offset 200 of {pipeline.source}/0, and its changelog is empty:"
        " it was deleted; bring it back, or begin anew with `headrace reset`"
    )
    administer(pipeline, lambda cluster: cluster.delete([changelog]))
    pipeline.lose_state()
    assert refusal(pipeline) == sentence
    # The state on disk is of the one that is gone, and is put aside.
    administer(pipeline, lambda cluster: cluster.delete([changelog]))
    shutil.rmtree(state, ignore_errors=True)
    kept.rename(state)
    assert refusal(pipeline) == sentence


def test_a_source_that_was_made_anew_is_refused(make_pipeline: MakePipeline) -> None:
    pipeline = used(make_pipeline)
    administer(pipeline, lambda cluster: cluster.delete([pipeline.source]))
    pipeline.clients.make_topic(pipeline.source)
    assert refusal(pipeline) == (
        f"`{pipeline.source}` was deleted and made anew since this state was written, so its"
        " offsets mean other records now; begin anew with `headrace reset`, which reads all that"
        " is there, or bring the topic back"
    )


def test_options_that_state_can_follow_are_taken_and_said(make_pipeline: MakePipeline) -> None:
    pipeline = used(make_pipeline)
    pipeline.write(
        OTHER_GRACE, DEDUPLICATE, "distinct: {window: {kind: tumbling, size: 1s, grace: 0s}}"
    )
    sidecar = pipeline.start()
    sidecar.wait_for("running")
    assert "`reorder` goes on with another `grace_ms`" in sidecar.log
    assert "`distinct` is new, and begins without state" in sidecar.log
    assert sidecar.stop() == 0
    pipeline.produce(some_records(10, 2, start_ms=8_000))
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    sidecar = pipeline.start()
    sidecar.wait_for("running")
    assert "was changed" not in sidecar.log
    assert sidecar.stop() == 0


def test_options_that_state_cannot_follow_are_refused_until_they_are_back(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = used(make_pipeline)
    pipeline.write(REORDER, OTHER_ID)
    assert refusal(pipeline) == (
        "`id` of `deduplicate` was header.id and is header.other now, which the state cannot"
        " follow; change it back, or begin anew with `headrace reset`"
    )
    pipeline.write(DEDUPLICATE)
    # Held records are lost if no operator releases them.
    held = refusal(pipeline)
    assert held.startswith("`reorder` is gone and still holds ")
    # Another machine has no state, and is told the same by the changelog.
    pipeline.lose_state()
    assert refusal(pipeline) == held
    pipeline.write(REORDER, DEDUPLICATE)
    go_on(pipeline)


def test_the_folder_of_another_pipeline_is_refused(make_pipeline: MakePipeline) -> None:
    pipeline, other = used(make_pipeline), make_pipeline(REORDER)
    other.clients.make_topic(other.sink, 1, {"retention.ms": "-1"})
    other.folder_of().parent.mkdir(parents=True)
    pipeline.folder_of().rename(other.folder_of())
    assert refusal(other) == (
        f"this state belongs to pipeline `{pipeline.name}`, not `{other.name}`;"
        " give each pipeline a state folder of its own"
    )


def test_a_folder_that_another_process_holds_is_refused_until_it_lets_go(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = used(make_pipeline)
    holder = RocksStore(pipeline.folder_of(), RocksMemory(8 << 20))
    try:
        assert refusal(pipeline) == (
            f"the state in {pipeline.folder_of()} is held by another process;"
            " stop it, or give this one another state folder"
        )
    finally:
        holder.close()
    go_on(pipeline)


def command(file: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """`headrace run` as a person calls it."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("headrace")), "run", str(file)],
        cwd=file.parent,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A pipeline's file, of no broker."""
    file = tmp_path / "clicks.yaml"
    file.write_text(
        "pipeline: clicks\nsource: {topic: raw}\noperators:\n"
        f"  - {REORDER}\nsink: {{topic: cleaned}}\n"
    )
    return file


@pytest.mark.long("outages", why="it waits ten seconds for a broker")
def test_without_a_broker_it_ends_with_3_and_a_sentence(written: Path, free_port: int) -> None:
    address = f"127.0.0.1:{free_port}"
    done = command(written, HEADRACE_BOOTSTRAP_SERVERS=address)
    assert done.returncode == 3
    assert done.stderr == (
        f"no broker answers at {address}: the connection is refused;"
        " check HEADRACE_BOOTSTRAP_SERVERS, and that the broker runs (tried for 10s)\n"
    )
    assert done.stdout == ""


def test_a_file_that_cannot_work_ends_with_2_before_anybody_is_asked(written: Path) -> None:
    written.write_text(written.read_text().replace("grace", "graze"))
    done = command(written)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{written}:4:")
    assert "grace" in line


def test_state_that_an_older_program_would_misread_says_so(make_pipeline: MakePipeline) -> None:
    pipeline = used(make_pipeline)
    changelog = f"{pipeline.name}-state-changelog"

    def layout() -> int:
        rows = pipeline.clients.consume_all(changelog)
        stamps = [one.value for one in rows if one.key == b"\x00stamp"]
        return int(json.loads(stamps[-1] or b"")["layout"])

    assert layout() == ONE_LENGTH_VERSION
    pipeline.write(REORDER, DEDUPLICATE.replace("20s", "100d"))
    sidecar = pipeline.start()
    sidecar.wait_for("] running ")
    assert sidecar.stop() == 0
    assert layout() == OPERATORS_VERSION
