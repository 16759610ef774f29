"""The page made of the reports of many runs."""

from __future__ import annotations

from pathlib import Path

from tests.long.certain import Ran, page, read_report

REPORT = """<testsuites><testsuite time="12.5">
<testcase classname="tests.a" name="test_x" time="1.5"/>
<testcase classname="tests.a" name="test_y" time="0.5"><failure message="no"/></testcase>
<testcase classname="tests.a" name="test_y" time="0.25"><error message="no"/></testcase>
</testsuite></testsuites>"""


def test_a_report_names_what_failed_and_how_long_each_test_took(tmp_path: Path) -> None:
    report = tmp_path / "1.xml"
    report.write_text(REPORT)
    ran = read_report(report)
    assert (ran.seconds, set(ran.failed)) == (12.5, {"tests.a::test_y"})
    assert ran.times_s == {"tests.a::test_x": 1.5, "tests.a::test_y": 0.75}


def test_a_run_without_a_report_is_red(tmp_path: Path) -> None:
    assert read_report(tmp_path / "none.xml").failed == ("the run itself",)


def test_the_page_counts_red_runs_and_shows_how_times_spread() -> None:
    runs = [Ran(10.0, (), {"a": 1.0}), Ran(30.0, ("b",), {"a": 3.0}), Ran(20.0, (), {"a": 2.0})]
    lines = page("abc", {"full-speed": runs, "one-core": []}).splitlines()
    assert any(
        line.startswith("| full-speed | abc | ") and line.endswith(" | 3 | 1 | 10 | 20 | 30 | b |")
        for line in lines
    )
    assert "| full-speed | a | 1.0 | 2.0 | 3.0 |" in lines
    assert not any("one-core" in line for line in lines)


def test_the_page_keeps_other_commits_and_replaces_its_own() -> None:
    first = page("abc", {"full-speed": [Ran(10.0, (), {})]})
    second = page("def", {"full-speed": [Ran(20.0, (), {})]}, first)
    third = page("def", {"full-speed": [Ran(20.0, (), {}), Ran(40.0, (), {})]}, second)
    rows = [line for line in third.splitlines() if line.startswith("| full-speed")]
    assert [row.split(" | ")[1] for row in rows] == ["abc", "def"]
    assert " | 2 | 0 | 20 | 30 | 40 | " in rows[1]
