"""Scenario files: pages with tables of records and results, and the check that they are true.

`contracts/semantics/testing.md` describes the form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast, overload

from headrace.contracts.decision import Decision
from headrace.contracts.errors import HeadraceError, ScenarioInvalid
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.problem_text import show
from headrace.contracts.selectors import load_object
from headrace.contracts.yaml_text import Form, parse_yaml, read_text
from headrace.extras import load
from headrace.pipeline import Pipeline
from headrace.services.cli.pipeline_file import load_pipeline, pipeline_of
from headrace.spark_jobs.queries.described import Query
from headrace.testing.query_result import QueryResult
from headrace.testing.records import checked_partitions
from headrace.testing.running import (
    AnyPipeline,
    Result,
    load_query,
    play,
    play_query,
    spec_of,
    topics_of,
)
from headrace.testing.tables import TOPIC, Event, Leaving, Row, Topics, read_table

SUFFIX = ".scenario.md"
_BLOCK = re.compile(r"^```scenario[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[ \t]*scenario\b", re.MULTILINE)
"""In Markdown each of these begins a block; here ```scenario alone does."""
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_OPERATORS_ALONE = "scenario"
_SEEDS = range(5)
FORM = Form("a page of scenarios", "```scenario", ScenarioInvalid)


class Scenario(NamedTuple):
    """One table, and the pipeline or the query that it is about."""

    name: str
    file: str
    line: int
    about: PipelineSpec | Query
    rows: list[Row]
    partitions: int | None
    has_intake: bool
    """Whether the scenario runs a whole pipeline, and not only operators."""

    @property
    def records_alone(self) -> bool:
        """Whether no event is between its records."""
        return not any(isinstance(row.what, Event) for row in self.rows)


def load_scenarios(file: Path) -> list[Scenario]:
    """Load all scenarios of a file; raise ScenarioInvalid, or the error of a pipeline it names."""
    page = read_text(lambda: file.open("rb"), str(file), FORM)
    found = list(read_scenarios(page, str(file), file.parent))
    if not found:
        message = f"{file}: there is no scenario here; begin one with a line ```scenario"
        raise ScenarioInvalid(message)
    return found


def read_scenarios(page: str, file: str, folder: Path) -> Iterator[Scenario]:
    """Read all scenarios of a page; the pipelines that they name are in this folder."""
    page = page.replace("\r\n", "\n")
    blocks = list(_BLOCK.finditer(page))
    _refuse_others(page, blocks, file)
    for block in blocks:
        line = page.count("\n", 0, block.start(1)) + 1
        headings = _HEADING.findall(_BLOCK.sub("", page[: block.start()]))
        yield _read_scenario(block[1], headings[-1] if headings else "scenario", file, line, folder)


def _refuse_others(page: str, blocks: Sequence[re.Match[str]], file: str) -> None:
    """Refuse what looks like a scenario and is none: it would be left out, true or not."""
    known = {block.start() for block in blocks}
    for opening in _OPENING.finditer(page):
        if opening.start() not in known:
            line = page.count("\n", 0, opening.start()) + 1
            message = (
                f"{file}:{line}: this block would not be run; begin it with a line ```scenario and"
                " end it with a line ```, with nothing before or behind"
            )
            raise ScenarioInvalid(message)


def _read_scenario(text: str, name: str, file: str, line: int, folder: Path) -> Scenario:
    lines = text.splitlines()
    heads = (at for at, each in enumerate(lines) if each.startswith(("# ", "|")))
    head = next(heads, None)
    if head is None:
        message = f"{file}:{line}: there is no table; begin it with `# key time value -> leaves`"
        raise ScenarioInvalid(message)
    about, partitions, has_intake = _read_head("\n".join(lines[:head]), file, line, folder)
    topic = topics_of(about) if isinstance(about, Query) else about.source.topic
    rows = _read_promises("\n".join(lines[head:]), topic, file, line + head)
    return Scenario(f"{name}, line {line}", file, line, about, rows, partitions, has_intake)


def _read_promises(text: str, topic: Topics, file: str = "table", line: int = 1) -> list[Row]:
    """Read a table with an arrow; one without would always be true."""
    rows = read_table(text, topic=topic, file=file, line=line)
    if not rows or rows[0].leaves is None:
        message = f"{file}:{line}: the table says nothing of what leaves; write `->` into its head"
        raise ScenarioInvalid(message)
    return rows


def _read_head(
    text: str, file: str, line: int, folder: Path
) -> tuple[PipelineSpec | Query, int | None, bool]:
    """Read the pipeline or query, how many partitions its topics have, and whether it is whole."""
    # For our YAML reader, a list of operators must become a mapping, too.
    is_list = text.lstrip().startswith("-")
    head = f"operators:\n{text}" if is_list else text
    # Blank lines above give each line the number that it has on the page.
    above = "\n" * (line - 1 - is_list)
    written, places = parse_yaml(above + head, file, FORM) if text.strip() else ({}, {})
    partitions = _partitions(written.pop("partitions", None), f"{file}:{line}")
    if not written:
        message = (
            f"{file}:{line}: there is no pipeline above the table; begin with `pipeline:"
            " clicks.yaml`, or with operators, such as `reorder: {grace: 30s}`"
        )
        raise ScenarioInvalid(message)
    if "query" in written:
        return _query(written, f"{file}:{line}", folder), partitions, True
    if set(written) == {"pipeline"}:
        return _named(str(written["pipeline"]), file, line, folder), partitions, True
    if "source" in written:
        return pipeline_of(written, file, places), partitions, True
    alone = {
        "pipeline": _OPERATORS_ALONE,
        "source": {"topic": TOPIC},
        "operators": written["operators"] if is_list else [written],
        "sink": {"topic": "cleaned"},
    }
    if not is_list:
        places = {("operators", 0, *path): place for path, place in places.items()}
        places["operators", 0] = (line, 1)
    return pipeline_of(alone, file, places), partitions, False


def _partitions(count: object, place: str) -> int | None:
    try:
        return checked_partitions(count)
    except ScenarioInvalid as error:
        message = f"{place}: {error}"
        raise ScenarioInvalid(message) from error


def _query(written: dict[str, Any], place: str, folder: Path) -> Query:
    """Return the query that a scenario names, or that stands in it as in a job's file."""
    target = "headrace.testing.queries.loading:query_in"
    try:
        if set(written) == {"query"}:
            return load_query(str(written["query"]), folder)
        query_in = load(target, extra="spark", needed_for="a test of a query")
        return cast("Query", query_in(written))
    except HeadraceError as error:
        message = f"{place}: {error}"
        raise type(error)(message) from error


def _named(name: str, file: str, line: int, folder: Path) -> PipelineSpec:
    """Load a pipeline's file beside the page, or `module:name` of one in Python."""
    if ":" not in name:
        if not (folder / name).exists():
            message = (
                f"{file}:{line}: there is no file {show(name)} beside this page; check its name"
            )
            raise ScenarioInvalid(message)
        return load_pipeline(folder / name)
    try:
        found = load_object(name)
    except HeadraceError as error:
        message = f"{file}:{line}: {error}"
        raise ScenarioInvalid(message) from error
    if not isinstance(found, Pipeline | PipelineSpec):
        message = f"{file}:{line}: {show(name)} is no pipeline; name what `.to(...)` gave"
        raise ScenarioInvalid(message)
    return spec_of(found)


@overload
def check(pipeline: Query, table: str, *, partitions: int | None = None) -> QueryResult: ...
@overload
def check(pipeline: AnyPipeline, table: str, *, partitions: int | None = None) -> Result: ...
def check(
    pipeline: AnyPipeline | Query, table: str, *, partitions: int | None = None
) -> Result | QueryResult:
    """Run a table and check that the results are those behind its arrows.

    AssertionError shows each line that is not true, with each operator's decision about it.
    """
    result: Result | QueryResult
    if isinstance(pipeline, Query):
        rows = _read_promises(table, topics_of(pipeline))
        result = play_query(pipeline, rows, partitions=partitions)
    else:
        spec = spec_of(pipeline)
        rows = _read_promises(table, spec.source.topic)
        result = play(spec, rows, partitions=partitions)
    wrong = list(differences(rows, result))
    if wrong:
        raise AssertionError("\n".join(["", *wrong]))
    return result


def problems(scenario: Scenario) -> list[str]:
    """Return the problems of a scenario, none if it is true.

    The scenario runs record by record. If there are no events and only one partition, it also runs
    cut into batches, with commits and crashes.
    """
    try:
        return _problems(scenario)
    except ScenarioInvalid as error:
        message = f"{scenario.file}:{scenario.line}: {error}"
        raise ScenarioInvalid(message) from error


def _problems(scenario: Scenario) -> list[str]:
    spec, rows, partitions = scenario.about, scenario.rows, scenario.partitions
    if isinstance(spec, Query):
        found = play_query(spec, rows, partitions=partitions)
        return list(differences(rows, found, file=scenario.file))
    result = play(spec, rows, partitions=partitions, has_intake=scenario.has_intake)
    wrong = list(differences(rows, result, file=scenario.file))
    one_way = len({row.what.partition for row in rows if not isinstance(row.what, Event)}) <= 1
    if wrong or not scenario.records_alone or not one_way:
        return wrong
    for seed in _SEEDS:
        again = play(spec, rows, partitions=partitions, has_intake=scenario.has_intake, seed=seed)
        if again.leaves != result.leaves:
            wrong = list(differences(rows, again, file=scenario.file))
            return [f"cut into batches and crashed (seed {seed}) it is not true:", *wrong]
    return []


def differences(
    rows: Sequence[Row], result: Result | QueryResult, *, file: str = "table"
) -> Iterator[str]:
    """Describe each row that is not true: the expected results, the real ones, and the reasons."""
    decisions: Sequence[Decision] | None = None
    for row, left in zip(rows, result.leaves, strict=True):
        if row.leaves is None or _by_side(row.leaves) == _by_side(left):
            continue
        if decisions is None:
            decisions = result.decisions if isinstance(result, Result) else ()
        yield f"{file}:{row.line}: {row.text}"
        yield f"    expected  {_told(row.leaves)}"
        yield f"    left      {_told(left)}"
        for decision in _about(row, decisions):
            yield f"    because   {decision}"


def _by_side(leaves: Sequence[Leaving]) -> list[list[Leaving]]:
    """Sort results by topic, since no order holds between two topics."""
    sides = sorted({leaving.side for leaving in leaves})
    return [[leaving for leaving in leaves if leaving.side == side] for side in sides]


def _told(leaves: Sequence[Leaving]) -> str:
    return " ".join(map(str, leaves)) or "nothing"


def _about(row: Row, decisions: Sequence[Decision]) -> Iterator[str]:
    if isinstance(row.what, Event):
        return
    at = (row.what.partition, row.what.offset)
    for decision in decisions:
        record = decision.record
        if (record.partition, record.offset) == at:
            evidence = ", ".join(f"{name}={value}" for name, value in decision.evidence)
            said = f"{decision.operator}: {decision.verdict}, {decision.reason}"
            yield f"{said} ({evidence})" if evidence else said
