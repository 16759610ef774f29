"""Around a task, jars leave Python's path, so that imports search them no more."""

from __future__ import annotations

import gc
import importlib.util
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from headrace.spark_jobs.worker import forget_jars, settle, without_jars


def test_jars_leave_the_path_and_what_python_remembers_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar, archive = str(tmp_path / "connector.jar"), str(tmp_path / "code.zip")
    for name in (jar, archive):
        with ZipFile(name, "w") as file:
            file.writestr(f"of_{Path(name).stem}/__init__.py", "")
    monkeypatch.setattr(sys, "path", [jar, archive, *sys.path])
    for name in ("of_connector", "of_code"):
        importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
    assert jar in sys.path_importer_cache
    forget_jars()
    assert not [name for name in sys.path_importer_cache if ".jar" in name]
    assert archive in sys.path_importer_cache
    assert importlib.util.find_spec("of_connector") is None
    assert importlib.util.find_spec("of_code") is not None


def test_a_task_is_sent_archives_and_no_jars() -> None:
    assert without_jars(["a.jar", "code.zip", "b.jar", "egg.egg"]) == ["code.zip", "egg.egg"]


def test_a_settled_worker_looks_through_new_objects_alone() -> None:
    settle.cache_clear()
    before: list[object] = []
    settle()
    behind: list[object] = []
    settle()
    # By identity, and not by how many are frozen: frozen objects, too, are freed any time.
    seen = {id(each) for each in gc.get_objects()}
    gc.unfreeze()
    assert id(before) not in seen
    assert id(behind) in seen
