"""The page of queries is true, as far as it can be without Spark."""

from __future__ import annotations

import yaml

from headrace.spark_jobs.queries.file import QueryFile
from tests.pages import blocks

PAGE = "contracts/semantics/spark_query.md"


def test_its_snippets_run_one_after_the_other() -> None:
    names: dict[str, object] = {}
    for text in blocks(PAGE, "python"):
        exec(compile(text, PAGE, "exec"), names)  # noqa: S102 - it is our own page
    assert names["same"] == names["priced"]


def test_its_file_is_the_same_query() -> None:
    names: dict[str, object] = {}
    for text in blocks(PAGE, "python"):
        exec(compile(text, PAGE, "exec"), names)  # noqa: S102 - as above
    (file,) = blocks(PAGE, "yaml")
    said = QueryFile.model_validate(yaml.safe_load(file), by_alias=True, by_name=False)
    assert said.described() == names["priced"]
