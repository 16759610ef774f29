"""Scenario files, as pytest and as `headrace test` run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.contracts.errors import ScenarioInvalid
from headrace.services.cli import main
from headrace.testing.scenarios import Scenario, load_scenarios, problems
from tests.pages import installed

PIPELINE = """\
pipeline: clicks
source: {topic: clicks.raw}
operators: [{reorder: {grace: 10s}}]
sink: {topic: clicks.cleaned}
"""
TRUE = """\
# Clicks

## In order

```scenario
pipeline: clicks.yaml
# key  time  value  -> leaves
a      20s   x      ->
b      15s   y      ->
c      30s   z      -> b@15s=y a@20s=x
```
"""
FALSE = """
## Out of order

```scenario
pipeline: clicks.yaml
# key  time  value  -> leaves
a      20s   x      ->
b      31s   y      -> a@20s=y
```
"""
WHY = """\
c.scenario.md:19: b 31s y
    expected  a@20s=y
    left      a@20s=x
    because   reorder: held, within-grace (stream_time_ms=31000, grace_ms=10000)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "clicks.yaml").write_text(PIPELINE)
    (tmp_path / "a.scenario.md").write_text(TRUE)
    return tmp_path


def called(folder: Path, *command: str) -> tuple[int, str]:
    """Exit code and output of a command that runs there."""
    done = subprocess.run(
        command, cwd=folder, env=installed(), capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def of_headrace(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str]:
    """Exit code and output of `headrace test` there, in this process."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["headrace", "test"])
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capsys.readouterr()
    return stopped.value.code, captured.out + captured.err


def of_pytest(folder: Path, *words: str) -> tuple[int, str]:
    """The same of pytest, as strict as can be."""
    strict = ("-W", "error", "--strict-config", "--strict-markers", "-p", "no:cacheprovider")
    return called(folder, sys.executable, "-m", "pytest", *strict, *words)


def test_a_true_scenario_passes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert of_headrace(folder, monkeypatch, capsys) == (
        0,
        "true   a.scenario.md: In order, line 6\n1 are true, 0 are not\n",
    )
    code, said = of_pytest(folder, "-v")
    assert (code, "1 passed" in said) == (0, True)
    assert "a.scenario.md::In order, line 6 PASSED" in said


def test_a_false_scenario_is_shown_with_its_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "c.scenario.md").write_text(TRUE + FALSE)
    code, said = of_headrace(folder, monkeypatch, capsys)
    assert code == 1
    assert "".join(f"    {line}\n" for line in WHY.splitlines()) in said
    assert said.endswith("2 are true, 1 are not\n")
    code, said = of_pytest(folder)
    assert (code, "1 failed, 2 passed" in said) == (1, True)
    assert WHY.partition("\n")[2] in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("nothing", "b.scenario.md: there is no scenario here; begin one with a line ```scenario"),
        (
            "```scenario\npipeline: there.yaml\n# key ->\na ->\n```\n",
            "b.scenario.md:2: there is no file `there.yaml` beside this page; check its name",
        ),
        (
            "```scenario\npipeline: headrace:Record\n# key ->\n```\n",
            "b.scenario.md:2: `headrace:Record` is no pipeline; name what `.to(...)` gave",
        ),
        (
            "```scenario\nreorder: {grace: 5 s}\n# key ->\n```\n",
            "b.scenario.md:2:11: operators[0].reorder.grace: `5 s` is not a duration; write a",
        ),
        (
            "# A\n\n```scenario\n- table: {}\n- reorder: {grce: 5s}\n# key ->\n```\n",
            "b.scenario.md:5:13: operators[1].reorder.grce: `grce` is not known here; did you mean",
        ),
        (
            "```scenario\n" + PIPELINE.replace("10s", "10") + "late: x\n# key ->\n```\n",
            "b.scenario.md:6:1: late: `x` is not a mapping of options; write `late: {topic:",
        ),
        (
            "# A\n\n```scenario\nreorder: {grace: 5s\n# key ->\n```\n",
            "b.scenario.md:4:20: this is not YAML: a mapping is not closed by `}`",
        ),
        (
            "# A\n\n```scenario\nreordr: {grace: 5s}\n# key ->\n```\n",
            "b.scenario.md:4:1: operators[0]: `reordr` is not an operator; did you mean `reorder`?",
        ),
        (
            "```scenario\n# key ->\na ->\n```\n",
            "b.scenario.md:2: there is no pipeline above the table; begin with `pipeline: clicks.y",
        ),
        (
            "```scenario\nreorder: {grace: 5s}\n```\n",
            "b.scenario.md:2: there is no table; begin it with `# key time value -> leaves`",
        ),
        (
            "```scenario\nreorder: {grace: 5s}\n# key\na\n```\n",
            "b.scenario.md:3: the table says nothing of what leaves; write `->` into its head",
        ),
        (
            "```scenario\nreorder: {grace: 5s}\n# key  ->\na b\n```\n",
            "b.scenario.md:4: there is no `->` in `a b`; put it behind the record",
        ),
        (
            "```scenario\npartitions: many\nreorder: {grace: 5s}\n# key  ->\n```\n",
            "b.scenario.md:2: `many` is not a number of partitions",
        ),
    ],
)
def test_a_file_that_is_wrong_is_a_sentence(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    page: str,
    sentence: str,
) -> None:
    (folder / "b.scenario.md").write_text(page)
    code, said = of_headrace(folder, monkeypatch, capsys)
    assert (code, said.count("\n")) == (2, 3)
    assert sentence in said


def test_scenarios_before_a_wrong_one_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "```scenario\npartitions: 1\ntable: {}\n# partition key ->\n3 a ->\n```\n"
    (folder / "a.scenario.md").write_text(TRUE + FALSE + wrong)
    code, said = of_headrace(folder, monkeypatch, capsys)
    assert code == 2
    assert "\n1 are true, 1 are not\n" in said
    assert "a.scenario.md:22: a record stands in a partition that the source has not" in said


def test_a_page_with_the_lines_of_another_system_is_the_same_page(folder: Path) -> None:
    page = (TRUE + FALSE).replace("```scenario\n", "```scenario  \n")
    (folder / "a.scenario.md").write_bytes(page.replace("\n", "\r\n").encode())
    (same, false) = load_scenarios(folder / "a.scenario.md")
    assert (same.line, same.rows) == (6, load_scenarios_of(folder, TRUE)[0].rows)
    assert problems(same) == []
    assert problems(false)


def load_scenarios_of(folder: Path, page: str) -> list[Scenario]:
    """The scenarios of a page that lies there."""
    (folder / "page.scenario.md").write_text(page)
    return load_scenarios(folder / "page.scenario.md")


@pytest.mark.parametrize(
    "other",
    [
        FALSE.removesuffix("```\n"),
        FALSE.replace("```scenario", "```scenario of mine"),
        FALSE.replace("```", "````"),
        FALSE.replace("```", "~~~"),
        FALSE.replace("```", "  ```"),
    ],
)
def test_a_block_that_would_not_be_run_is_a_sentence(folder: Path, other: str) -> None:
    with pytest.raises(
        ScenarioInvalid, match=r"page\.scenario\.md:15: this block would not be run"
    ):
        load_scenarios_of(folder, TRUE + other)


def test_a_file_that_is_wrong_is_a_sentence_in_pytest(folder: Path) -> None:
    (folder / "b.scenario.md").write_text("nothing")
    code, said = of_pytest(folder)
    assert code == 2
    assert "b.scenario.md: there is no scenario here; begin one with a line ```scenario" in said
    assert "Traceback" not in said


def test_no_scenario_at_all_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert of_headrace(tmp_path, monkeypatch, capsys) == (
        2,
        ".: there is no scenario here; write one into `clicks.scenario.md`\n",
    )


def test_a_pipeline_in_python_is_found_beside_the_page(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "import headrace as hr\n"
        "def is_kept(record: hr.Record) -> bool:\n"
        "    return record.key == b'a'\n"
        "mine = hr.Pipeline('mine').source('raw').filter(where=is_kept).to('cleaned')\n"
    )
    (folder / "a.scenario.md").write_text(
        "```scenario\npipeline: mine:mine\n# key ->\na -> a@0ms=null\nb ->\n```\n"
    )
    assert called(folder, "headrace", "test")[0] == 0


def test_cuts_and_crashes_are_run_as_well(tmp_path: Path) -> None:
    (tmp_path / "a.scenario.md").write_text(
        "```scenario\nfilter: {where: tests.testing.functions:is_first}\n"
        "# key value -> leaves\na x -> a@0ms=x\na y -> a@0ms=y\n```\n"
    )
    (scenario,) = load_scenarios(tmp_path / "a.scenario.md")
    assert problems(scenario)[0] == "cut into batches and crashed (seed 0) it is not true:"


def test_the_fixture_finds_what_lies_beside_the_test(folder: Path) -> None:
    (folder / "test_mine.py").write_text(
        "from headrace.testing import shown\n"
        "def test_mine(headrace):\n"
        "    result = headrace.run('clicks.yaml', '# time\\n5s\\n3s\\n60s\\n')\n"
        "    assert shown(result.cleaned) == ['null@3s=null', 'null@5s=null']\n"
        "    headrace.check('clicks.yaml', '# time ->\\n5s ->\\n15s -> null@5s=null')\n"
    )
    code, said = of_pytest(folder)
    assert (code, "2 passed" in said) == (0, True), said


def test_where_no_scenario_is_collected_nothing_is_imported(tmp_path: Path) -> None:
    (tmp_path / "test_modules.py").write_text(
        "import sys\n"
        "def test_modules():\n"
        "    ours = {name for name in sys.modules if name.partition('.')[0] == 'headrace'}\n"
        "    assert ours <= {'headrace', 'headrace.pytest_plugin'}\n"
        "    assert not {'pydantic', 'yaml', 'rich'} & sys.modules.keys()\n"
    )
    # Plugins of others, such as hypothesis, import what they like.
    others = [word for name in ("hypothesispytest", "xdist") for word in ("-p", f"no:{name}")]
    code, said = of_pytest(tmp_path, *others)
    assert code == 0, said


def test_it_does_without_hypothesis() -> None:
    asked = "import sys; sys.modules['hypothesis'] = None; import headrace.testing"
    assert called(Path(), sys.executable, "-c", asked) == (0, "")
    code, said = called(Path(), sys.executable, "-c", f"{asked}.strategies")
    assert code == 1
    assert said.endswith(
        "headrace.testing.strategies needs hypothesis, which is not installed;"
        " run: pip install 'headrace[testing]'\n"
    )
