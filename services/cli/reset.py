"""`headrace reset`: a pipeline forgets what it knows, and starts its source from the beginning."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headrace.contracts.pipeline import PipelineSpec
from headrace.services.admin.reset import Remains, find_remains, forget
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.settings import read_settings

_Switch = Annotated[bool, Parameter(negative=())]


def reset(
    pipeline: Path,
    *,
    yes: _Switch = False,
    cleaned: _Switch = False,
    bootstrap_servers: str | None = None,
    state_folder: Path | None = None,
) -> None:
    """Have a pipeline start again from the beginning of its source; without --yes, only show how.

    Its instances must be stopped. Late and dead records stay where they are.

    Args:
        pipeline: The pipeline's YAML file.
        yes: Do it.
        cleaned: Delete the cleaned topic and its progress as well.
        bootstrap_servers: The addresses of brokers: `host:port`, with commas between.
        state_folder: The folder of the state.
    """
    spec = load_pipeline(pipeline)
    settings = read_settings(bootstrap_servers=bootstrap_servers, state_folder=state_folder)
    remains = asyncio.run(find_remains(spec, settings, cleaned=cleaned))
    if yes:
        asyncio.run(forget(remains, settings))
    lines = list(_lines(remains))
    if not lines:
        print(f"{spec.pipeline} knows nothing yet; there is nothing to delete")
        return
    print("deleted:" if yes else "would be deleted:", *lines, sep="\n  ")
    print(*_consequences(spec, remains, cleaned=cleaned), sep="\n")
    if not yes:
        print("nothing was changed; to do it, add --yes")


def _lines(remains: Remains) -> Iterator[str]:
    if remains.offsets:
        yield f"the offsets of the group {remains.group} (partitions: {remains.offsets})"
    for topic, records in remains.topics.items():
        yield f"the topic {topic} (records: {records})"
    if remains.folder is not None:
        yield f"the folder {remains.folder}"


def _consequences(spec: PipelineSpec, remains: Remains, *, cleaned: bool) -> Iterator[str]:
    yield f"{spec.pipeline} starts again from the beginning of {spec.source.topic}"
    if not cleaned:
        yield f"{spec.sink.topic} keeps its records, and will have them once more"
    folder = remains.folder or Path(spec.pipeline)
    yield f"on other machines, delete the folder {folder.name} in their state folder as well"
