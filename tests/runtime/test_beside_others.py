"""The wheel in a project that has folders called as ours are: `services`, `contracts`, `tests`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from headrace.contracts.record import Record
from tests.architecture.source import ROOT
from tests.runtime.sidecar import MakePipeline, Pipeline, contents, record

THEIRS = {
    "contracts/__init__.py": "",
    "spark_jobs/__init__.py": "",
    "services/__init__.py": "",
    "services/ids.py": "def id_of(record):\n    return record.value[:1]\n",
    "tests/__init__.py": "",
    "tests/test_ids.py": """\
from services.ids import id_of

import contracts
from headrace import DeduplicatePolicy, Record


def test_the_id_is_the_first_byte():
    assert id_of(Record(None, b"ab", 0, (), "raw", 0, 0)) == b"a"
    assert DeduplicatePolicy(by="key+id", id="services.ids:id_of", interval_ms=1)
    assert not hasattr(contracts, "errors")
""",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of who has installed the wheel, and has no checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    subprocess.run([*build, str(folder)], cwd=ROOT, capture_output=True, check=True)
    with ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder / "site")
    assert {path.name.partition("-")[0] for path in (folder / "site").iterdir()} == {"headrace"}
    # It stands before the checkout, to which this environment has a path.
    return {**os.environ, "PYTHONPATH": str(folder / "site")}


def lay_out(folder: Path) -> None:
    for name, text in THEIRS.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")


def test_a_function_of_their_services_cleans_a_topic(
    make_pipeline: MakePipeline, installed: dict[str, str]
) -> None:
    pipeline = make_pipeline("deduplicate: {by: key+id, id: 'services.ids:id_of', interval: 1h}")
    lay_out(pipeline.folder)
    pipeline.produce([record(b"k", value, 0) for value in (b"a", b"again", b"b")])
    assert [value for _, value, *_ in contents(_cleaned_by(pipeline, installed))] == [b"a", b"b"]


def _cleaned_by(pipeline: Pipeline, environment: dict[str, str]) -> list[Record]:
    command = str(Path(sys.executable).with_name("headrace"))
    settings = {
        "HEADRACE_BOOTSTRAP_SERVERS": pipeline.servers,
        "HEADRACE_STATE_FOLDER": str(pipeline.state),
    }
    running = subprocess.Popen(
        [command, "run", str(pipeline.file)],
        cwd=pipeline.folder,
        env={**environment, **settings},
        stderr=subprocess.PIPE,
    )
    with running:
        try:
            pipeline.wait_until(lambda: running.poll() is not None or _is_done(pipeline), "its end")
            return pipeline.cleaned()
        finally:
            running.terminate()


def _is_done(pipeline: Pipeline) -> bool:
    return pipeline.committed().get((pipeline.source, 0), 0) >= 3


def test_their_tests_import_their_packages_and_ours(
    tmp_path: Path, installed: dict[str, str]
) -> None:
    lay_out(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=tmp_path,
        env=installed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
