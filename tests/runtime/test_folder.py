"""A pipeline's folder of state: whose it is, and what stands in it beside the hops."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.contracts.errors import PipelineInvalid, StateUnavailable
from headrace.contracts.hops import FILES_BESIDE_HOPS
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.pipeline_text import read_pipeline
from headrace.services.runtime.machine.folder import client_of, held


def named(name: str, by: str) -> PipelineSpec:
    """A pipeline with a deduplicate of this name."""
    step = {"name": name, "by": by, "id": "value.id", "interval": "1h"}
    document = {
        "pipeline": "clicks",
        "source": {"topic": "raw"},
        "operators": [{"deduplicate": step}],
        "sink": {"topic": "cleaned"},
    }
    return read_pipeline(document, "clicks.yaml", {})


def test_no_hop_has_the_name_of_a_file_in_the_folder(tmp_path: Path) -> None:
    with held(tmp_path):
        client_of(tmp_path)
        files = {path.name for path in tmp_path.iterdir()}
    assert files <= set(FILES_BESIDE_HOPS)
    for name in FILES_BESIDE_HOPS:
        with pytest.raises(PipelineInvalid, match=f"`{name}` is what headrace calls a file"):
            named(name, "id")
        # It stays in the first hop, and has no folder of its own.
        assert named(name, "key+id").hops()[0].name == "state"


@pytest.mark.parametrize("found", [b"", b"ab" * 15, b"\0" * 32, b"ab" * 17])
def test_a_name_that_a_lost_machine_left_damaged_is_made_anew(tmp_path: Path, found: bytes) -> None:
    (tmp_path / "client").write_bytes(found)
    client = client_of(tmp_path)
    assert client_of(tmp_path) == client


def test_a_name_that_cannot_be_kept_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    with pytest.raises(StateUnavailable, match="check that the disk has room"):
        client_of(tmp_path)
