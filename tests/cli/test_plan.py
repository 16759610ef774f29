"""`headrace plan`, as a process of its own and in one."""

from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.yaml_text import parse_yaml
from headrace.services.cli.pipeline_file import FORM, load_pipeline
from headrace.services.cli.plan import print_plan

ROOT = Path(__file__).parents[2]
PIPELINES = sorted((ROOT / "docker" / "pipelines").glob("*.yaml"))
PLANS = Path(__file__).parent / "plans"
WRITTEN = {
    "HOURLY": "{kind: tumbling, size: 1h, grace: 0s}",
    "HOPPING": "{kind: hopping, size: 1h, advance: 10m, grace: 0s}",
    "SHUT_DOWN": "{records: 1, when-full: shut-down}",
}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, in the folder of the code."""
    return subprocess.run(
        [sys.executable, "-m", "headrace.services.cli", *words],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def printed(spec: PipelineSpec) -> str:
    """A plan as text."""
    text = StringIO()
    print_plan(spec, Console(file=text, width=100, highlight=False, color_system=None))
    return text.getvalue()


def lines_of(text: str) -> list[str]:
    """Lines without the spaces that fill them."""
    return [line.rstrip() for line in text.splitlines()]


def golden(name: str) -> list[str]:
    """The plan of an example as it was."""
    return lines_of((PLANS / f"{name}.txt").read_text(encoding="utf-8"))


def planned(operators: str) -> str:
    """The plan of a pipeline with these operators, on one line."""
    for name, written in WRITTEN.items():
        operators = operators.replace(name, written)
    text = f"{{pipeline: p, source: {{topic: a}}, sink: {{topic: b}}, operators: [{operators}]}}"
    document, _ = parse_yaml(text, "p.yaml", FORM)
    return " ".join(printed(PipelineSpec.model_validate(document)).replace("│", " ").split())


def test_there_are_examples() -> None:
    names = [file.stem for file in PIPELINES]
    assert " ".join(names) == "alerts chain deduplicate orders prices reorder suppress"


@pytest.mark.parametrize("file", PIPELINES, ids=lambda file: file.stem)
def test_every_example_is_planned_as_before(file: Path) -> None:
    """`COLUMNS=100 headrace plan docker/pipelines/X.yaml > tests/cli/plans/X.txt` renews one."""
    assert lines_of(printed(load_pipeline(file))) == golden(file.stem)


@pytest.mark.parametrize("file", PIPELINES, ids=lambda file: file.stem)
def test_no_example_is_worth_a_warning(file: Path) -> None:
    assert load_pipeline(file).warnings() == []


def test_a_good_file() -> None:
    done = run("plan", "docker/pipelines/chain.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert lines_of(done.stdout) == golden("chain")


def test_rights_are_lines_for_kafka_acls_and_nothing_else() -> None:
    done = run("plan", "docker/pipelines/reorder.yaml", "--acls", "User:CN=ada, O=x")
    assert (done.returncode, done.stderr) == (0, "")
    first, source, line, *rest = done.stdout.splitlines()
    assert first == "# Without these User:CN=ada, O=x cannot run the pipeline."
    assert source == "# the pipeline's records come from it"
    assert line == (
        "kafka-acls.sh --bootstrap-server 127.0.0.1:9092 --add --allow-principal 'User:CN=ada, O=x'"
        " --operation Read --topic positions.raw"
    )
    assert all(line.startswith(("# ", "kafka-acls.sh ")) for line in rest)
    assert "--cluster" in rest[-1]
    assert rest[-1].startswith("# ")


def test_rights_follow_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_GUARANTEE", "at-least-once")
    monkeypatch.setenv("HEADRACE_DECISIONS", "true")
    told = run("plan", "docker/pipelines/reorder.yaml", "--acls", "User:ada").stdout
    assert ".decisions" in told
    assert "transactional-id" not in told


def test_a_principal_without_its_type_is_a_sentence() -> None:
    done = run("plan", "docker/pipelines/reorder.yaml", "--acls", "ada")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "--acls: `ada` is no principal of Kafka; write its type, too: User:ada\n"
    )


def test_a_bad_file_is_a_line_a_problem_and_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "clicks.yaml"
    file.write_text("pipeline: clicks\nsource: {topic: a}\noperators: [{tabel: {}}]\nsink: 3\n")
    done = run("plan", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first == f"{file}:3:13: operators[0]: `tabel` is not an operator; did you mean `table`?"
    assert second.startswith(f"{file}:4:1: sink: `3` is not a mapping of options; write `sink: {{")


def test_a_file_that_is_not_there() -> None:
    done = run("plan", "absent.yaml")
    assert done.returncode == 2
    assert done.stderr == "absent.yaml: there is no such file; check the name and the folder\n"


def test_a_terminal_without_unicode() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace.services.cli", "plan", "docker/pipelines/chain.yaml"],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert b"+-- reorder" in done.stdout


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        (
            "reorder: {grace: 0s}",
            ["grace: 0ms nothing waits, no record is late, and nothing is kept"],
        ),
        ("reorder: {grace: 1s, late: drop}", ["is dropped, and counted"]),
        ("reorder: {grace: 1s, late: topic}", ["goes to b.late", "b.late (late):"]),
        ("reorder: {grace: 1s, idle: 1m}", ["after 1m of silence", "looks at the clock"]),
        (
            "reorder: {grace: 1s, buffer: {records: 5, bytes: 1KiB, when-full: spill}}",
            ["at most 5 records and 1.0 KiB a partition", "bound is one on memory"],
        ),
        (
            "deduplicate: {by: id, id: header.id, interval: 1h, name: once}",
            [
                "deduplicate `once`",
                "whatever their keys and partitions",
                "every record is written to p-once-repartition and read again",
                "the id is the last header `id`",
                "p-once-changelog (changelog):",
            ],
        ),
        ("deduplicate: {by: key+id, id: value, interval: 1h}", ["the id is the whole value"]),
        ("deduplicate: {by: key+id, id: key, interval: 1h}", ["the id is the record's key"]),
        ("deduplicate: {interval: 1h}", ["two records with one key are duplicates"]),
        (
            "distinct: {window: {kind: session, gap: 5m, grace: 1m}}",
            ["as long as no silence is longer than 5m; open for 1m more"],
        ),
        ("table: {}", ["the newest value of every key"]),
        ("filter: {where: 'json:loads'}", ["where: json:loads a record for which"]),
        (
            "table: {}, filter: {where: 'json:loads'}",
            ["where: json:loads a row for which it holds no more"],
        ),
        ("filter: {where: 'json:loads'}, table: {}", ["where: json:loads a record for which"]),
        (
            "table: {}, reorder: {grace: 1s}, filter: {where: 'json:loads'}",
            ["where: json:loads a record for which"],
        ),
        (
            "table: {}, suppress: {until: time-limit, limit: 1s}, filter: {where: 'json:loads'}",
            ["where: json:loads a row for which it holds no more"],
        ),
        ("aggregate: {function: count}", ["one result for every key there ever was"]),
        (
            "aggregate: {function: sum, of: 'json:loads', retention: 1d, window: HOPPING}",
            ["what `json:loads` returns", "1h each, a new one every 10m", "of the last 1d"],
        ),
        (
            "aggregate: {function: max, window: {kind: sliding, difference: 1m, grace: 0s}}",
            ["records at most 1m apart"],
        ),
        (
            "aggregate: {function: max, window: {kind: unlimited}}",
            ["one window that never closes"],
        ),
        (
            "suppress: {until: window-closes, window: HOURLY, buffer: SHUT_DOWN}",
            ["one final result a key and window", "1h each", "stops with exit code 5"],
        ),
    ],
)
def test_each_option_is_explained(operators: str, expected: list[str]) -> None:
    plan = planned(operators)
    for part in expected:
        assert part in plan


def test_a_reorder_without_grace_promises_nothing_of_late_records() -> None:
    plan = planned("reorder: {grace: 0s}")
    assert "no record is late" in plan
    assert "late: forward" not in plan
    assert "late: drop" in planned("reorder: {grace: 1s, late: drop, idle: 5s}")


def test_a_delay_is_explained_and_what_it_makes_of_idle() -> None:
    source = {"topic": "raw", "max-delay": "1m"}
    operators = [{"filter": {"where": "value > 1"}}]
    document = {"pipeline": "p", "source": source, "operators": operators, "sink": {"topic": "c"}}
    plan = " ".join(printed(PipelineSpec.model_validate(document)).split())
    assert "max-delay: 1m a partition at its end is as far as the clock less that" in plan
    assert "idle: never nobody guesses that a silent partition stays silent" in plan


def test_warnings_are_numbered() -> None:
    plan = planned("deduplicate: {interval: 1s}, reorder: {grace: 5s}")
    assert "Worth a thought 1. One record with a timestamp" in plan
    assert "2. `deduplicate` stands before `reorder`" in plan
    assert "3. `deduplicate` forgets an id after 1s" in plan


def test_how_much_state_there_would_be() -> None:
    words = ("--records-per-second", "1000", "--record-size", "1KiB")
    done = run("plan", "docker/pipelines/reorder.yaml", *words)
    assert "size         at most about 321.6 MiB over all partitions" in done.stdout
    assert "size " not in run("plan", "docker/pipelines/reorder.yaml").stdout


def test_a_size_that_is_none() -> None:
    words = ("--records-per-second", "1", "--record-size", "big")
    done = run("plan", "docker/pipelines/reorder.yaml", *words)
    assert done.returncode == 2
    assert done.stderr == (
        "`big` is not a size; write a number and a unit, such as 512KiB, 64MiB or 2GiB\n"
    )
