"""Folders that no file system takes end in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.contracts.errors import StateUnavailable
from headrace.spark_jobs.folder import Folder


@pytest.mark.parametrize("name", ["nowhere://lake/rows", "at 10:00"])
def test_a_name_that_no_file_system_takes_is_refused(spark: SparkSession, name: str) -> None:
    with pytest.raises(StateUnavailable, match=f"the folder `{name}` cannot be used: .+; see that"):
        Folder(spark, name)


def test_a_folder_in_a_file_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = Folder(spark, str(tmp_path / "file" / "rows"))
    assert folder.names("") == []
    with pytest.raises(StateUnavailable, match="file/rows` cannot be used: Parent path is not a"):
        folder.write("a", "text")
