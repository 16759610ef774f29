"""`headrace plan`: what a pipeline would do, and what it costs; touches nothing."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import AnyOperator
from headrace.contracts.time import COUNT_MAX, parse_size_bytes
from headrace.contracts.topics import TopicSpec
from headrace.services.cli.app import GROUP, load_command
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.cli.plan_text import (
    Line,
    explain_failure,
    explain_operator,
    explain_size,
    explain_source,
    explain_waits,
)
from headrace.services.cli.state_size import Traffic

_NAME_STYLE = "bold"
_PRINT_ACLS = EntryPoint("plan --acls", "headrace.services.cli.acls:print_acls", GROUP)


def plan(
    pipeline: Path,
    *,
    records_per_second: Annotated[
        int | None, Parameter(validator=Number(gte=0, lte=COUNT_MAX))
    ] = None,
    record_size: str = "500B",
    acls: str | None = None,
) -> None:
    """Check a pipeline file, and say what it would do; touch nothing.

    Args:
        pipeline: The pipeline's YAML file.
        records_per_second: Estimate the most state that so many records would make.
        record_size: The size of a record, for this estimate.
        acls: Print what this principal, such as User:ada, must be allowed on the brokers: lines for
            kafka-acls.sh, by the settings that `run` would have; and nothing else.
    """
    if acls is not None:
        # The bare package plans; settings come with an extra, and who lacks it is told.
        load_command(_PRINT_ACLS)(load_pipeline(pipeline), acls)
        return
    traffic = None
    if records_per_second is not None:
        traffic = Traffic(records_per_second, parse_size_bytes(record_size))
    print_plan(load_pipeline(pipeline), Console(highlight=False), traffic)


def print_plan(spec: PipelineSpec, console: Console, traffic: Traffic | None = None) -> None:
    """Print topology, topics and warnings."""
    console.print(_topology(spec, traffic))
    console.print()
    _print_topics(spec.topics(), console)
    sentences = spec.warnings()
    if sentences:
        console.print()
        console.print(Text("Worth a thought", style=_NAME_STYLE))
        console.print(_numbered(sentences))


def _topology(spec: PipelineSpec, traffic: Traffic | None) -> Tree:
    tree = Tree(Text(spec.pipeline, style=_NAME_STYLE))
    reading = [*explain_source(spec.source), *explain_waits(spec)]
    _branch(tree, f"reads {spec.source.topic}", reading)
    for policy in spec.operators:
        lines = [*explain_operator(policy, spec), *explain_size(policy, spec, traffic)]
        _branch(tree, _title(policy), lines)
    _branch(tree, f"writes {spec.sink.topic}", explain_failure(spec))
    return tree


def _title(policy: AnyOperator) -> str:
    return policy.kind if policy.name == policy.kind else f"{policy.kind} `{policy.name}`"


def _branch(tree: Tree, title: str, lines: Iterable[Line]) -> None:
    options = Table.grid(padding=(0, 2))
    for line in lines:
        options.add_row(Text(line.option), Text(line.meaning))
    tree.add(Text(title, style=_NAME_STYLE)).add(options)


def _print_topics(topics: list[TopicSpec], console: Console) -> None:
    console.print(Text("Topics that it makes where they are missing", style=_NAME_STYLE))
    shared = set.intersection(*(set(topic.settings().items()) for topic in topics))
    for topic in topics:
        own = [setting for setting in topic.settings().items() if setting not in shared]
        console.print(Text(f"{topic.name} ({topic.role}): {_written(own)}"))
        console.print(Padding(Text(topic.why), (0, 0, 0, 4)))
    console.print(Text(f"all of them: {_written(sorted(shared))}"))


def _written(settings: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings)


def _numbered(sentences: list[str]) -> Table:
    table = Table.grid(padding=(0, 1))
    for number, sentence in enumerate(sentences, start=1):
        table.add_row(Text(f"{number}."), Text(sentence))
    return table
