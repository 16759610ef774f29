"""Folders whose names have signs that mean more to Spark: braces in SQL, patterns in a path."""

from __future__ import annotations

from string import Formatter

import pytest

from headrace.spark_jobs.folder import literal
from headrace.spark_jobs.write.quoted import quoted
from headrace.spark_jobs.write.upsert import merge_of


@pytest.mark.parametrize("of_one_task", [True, False])
@pytest.mark.parametrize("folder", ["file:/rows/{env}", "file:/rows/{new}", "file:/rows/a{"])
def test_a_merge_names_a_folder_and_a_column_with_braces(folder: str, *, of_one_task: bool) -> None:
    table = f"delta.{quoted(folder)}"
    merge = merge_of(["key", "a{b}"], table, of_one_task=of_one_task)
    text = Formatter().format(merge, new="rows")
    assert f"MERGE INTO {table} AS kept USING rows AS new" in text
    assert "UPDATE SET `key` = new.`key`, `a{b}` = new.`a{b}`" in text


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("/rows/of-2026.11", "/rows/of-2026.11"),
        ("s3a://shop/rows [1]", r"s3a://shop/rows \[1\]"),
        ("/rows/{a,b}", r"/rows/\{a,b\}"),
        ("/rows/*?", r"/rows/\*\?"),
    ],
)
def test_a_path_is_read_as_no_pattern(path: str, read: str) -> None:
    assert literal(path) == read
