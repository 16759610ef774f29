"""Scenario files of queries, as pytest, `headrace test` and the fixture run them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.test_scenario_files import of_headrace, of_pytest

PYTHON = """\
import headrace as hr

bought = hr.table("bought.cleaned", "customer STRING, cents BIGINT")
hr.run(bought.group_by("customer").agg(hr.sum("cents")), name="sums", to=hr.console())
"""
YAML = """\
query: SELECT customer, sum(cents) AS total FROM bought GROUP BY customer
name: sums
servers: 127.0.0.1:9092
checkpoint: checkpoints/sums
tables:
  bought: {topic: bought.cleaned, schema: "customer STRING, cents BIGINT"}
sink: {console: {}}
"""
TABLE = """\
# key  time  value                       -> leaves
1      1s    {"customer":"a","cents":5}  -> a@1s={"customer":"a","NAME":5}
(crash)                                  ->
2      2s    {"customer":"a","cents":6}  -> a@2s={"customer":"a","NAME":11}
"""
BESIDE = """\
def test_sums(headrace):
    record = {'key': '1', 'value': {'customer': 'a', 'cents': 5}}
    result = headrace.run(headrace.query('sums.yaml'), [record])
    assert result.latest == {'a': {'customer': 'a', 'total': 5}}
"""
"""A test finds a query beside its own file."""


def page(query: str, name: str) -> str:
    """One scenario of a query."""
    return f"# Sums\n\n```scenario\n{query}\n{TABLE.replace('NAME', name)}```\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sums.py").write_text(PYTHON)
    (tmp_path / "sums.yaml").write_text(YAML)
    (tmp_path / "a.scenario.md").write_text(page("query: sums.py", "sum_cents"))
    (tmp_path / "b.scenario.md").write_text(page("query: sums.yaml", "total"))
    return tmp_path


def test_a_query_is_named_by_its_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = of_headrace(folder, monkeypatch, capsys)
    assert (code, said.endswith("2 are true, 0 are not\n")) == (0, True), said


def test_a_false_scenario_and_one_for_spark_alone_are_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "soundex.yaml").write_text(YAML.replace("sum(cents)", "max(soundex(customer))"))
    (folder / "c.scenario.md").write_text(page("query: sums.py", "sums_cents"))
    (folder / "d.scenario.md").write_text(page("query: soundex.yaml", "total"))
    (folder / "test_sums.py").write_text(BESIDE)
    code, said = of_pytest(folder)
    assert (code, "2 failed, 3 passed" in said, "Traceback" in said) == (1, True, False), said
    assert 'expected  a@1s={"customer":"a","sums_cents":5}' in said
    assert "SOUNDEX(customer)` is an expression that only Spark evaluates" in said
    ended, said = of_headrace(folder, monkeypatch, capsys)
    assert ended == 2
    assert "false  c.scenario.md: Sums, line 4" in said
    assert "SOUNDEX(customer)` is an expression that only Spark evaluates" in said
