"""`headrace inspect`: what a pipeline's state says now."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console

from headrace.contracts.errors import SettingsInvalid
from headrace.contracts.hops import Hop
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import read_operator
from headrace.services.admin.rebuild import rebuild
from headrace.services.cli.inspect_text import OperatorState, State, as_json, print_state
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.kafka.cluster import Ends
from headrace.services.operators.reading import read_key, read_rows
from headrace.services.runtime.machine.folder import unreadable
from headrace.services.settings import Settings, read_settings
from headrace.services.state.changelog import (
    ABOUT,
    RESTORED_AT,
    reached,
    read_position,
    read_purged,
    read_stamp,
)
from headrace.services.state.overlay import Overlay
from headrace.services.state.rocks import MEMORY_BYTES, RocksMemory, reading
from headrace.services.state.stamps import check_layout

_HEXADECIMAL = "0x"


def inspect(  # noqa: PLR0913 - each is a flag
    pipeline: Path,
    *,
    key: str | None = None,
    partition: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    operator: str | None = None,
    from_changelog: Annotated[bool, Parameter(negative=())] = False,
    as_json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
    bootstrap_servers: str | None = None,
    state_folder: Path | None = None,
) -> None:
    """Show what a pipeline's state held at its last commit, whether it runs or not.

    Args:
        pipeline: The pipeline's YAML file.
        key: Show all rows of this key, or id; hexadecimal if it begins with 0x.
        partition: Show this partition alone.
        operator: Show the operator with this name alone.
        from_changelog: Read the changelogs in Kafka, not this machine's folder.
        as_json_: Print JSON.
        bootstrap_servers: The addresses of brokers: `host:port`, with commas between.
        state_folder: The folder of the state.
    """
    spec = load_pipeline(pipeline)
    settings = read_settings(bootstrap_servers=bootstrap_servers, state_folder=state_folder)
    look = _Look(spec, _operators(spec, operator), None if key is None else _bytes_of(key))
    with Console(stderr=True).status("reading"):
        if from_changelog:
            asyncio.run(rebuild(spec, settings, partition, look.changelog))
        else:
            look.folder(settings, partition)
    if not look.states:
        raise SettingsInvalid(_nothing(spec, settings, partition, from_changelog=from_changelog))
    hops = [hop.called for hop in spec.hops()]
    states = sorted(look.states, key=lambda state: (hops.index(state.hop), state.partition))
    if as_json_:
        print(json.dumps({"pipeline": spec.pipeline, "partitions": list(map(as_json, states))}))
        return
    console = Console(highlight=False)
    for state in states:
        print_state(state, console)


class _Look:
    """Looks at one state after the other, and keeps what it saw."""

    def __init__(self, spec: PipelineSpec, operators: Collection[str], key: bytes | None) -> None:
        self.states: list[State] = []
        self._spec = spec
        self._operators = operators
        self._key = key

    def folder(self, settings: Settings, partition: int | None) -> None:
        """Look at what this machine's folder has."""
        memory = RocksMemory(settings.memory_bytes or MEMORY_BYTES)
        for hop in self._spec.hops():
            for number, path in _databases(settings.state_folder / self._spec.pipeline / hop.name):
                if partition is None or number == partition:
                    with reading(path, memory) as store:
                        state = self._state(hop, number, Overlay(store, self._spec.pipeline))
                    self.states.append(state._replace(size_bytes=_size_bytes(path)))

    def changelog(self, hop: Hop, number: int, overlay: Overlay, ends: Ends) -> None:
        """Look at what was read from a changelog."""
        state = self._state(hop, number, overlay)
        self.states.append(state._replace(changelog_first=ends.first, changelog_end=ends.end))

    def _state(self, hop: Hop, number: int, overlay: Overlay) -> State:
        about = overlay.view(ABOUT)
        stamp, at = read_stamp(about), read_position(about)
        if stamp is not None:
            check_layout(stamp)
        # The rows are what they were written as, whatever the file says by now.
        policies = [] if stamp is None else map(read_operator, stamp.operators)
        operators = []
        for policy in policies:
            name = policy.name or policy.kind
            if name in self._operators:
                view = overlay.view(policy.store or name)
                entries = [] if self._key is None else list(read_key(policy, view, self._key))
                operators.append(OperatorState(name, policy.kind, read_rows(policy, view), entries))
        return State(
            hop=hop.called,
            partition=number,
            position=None if at is None else at.offset,
            time_ms=None if at is None else at.time_ms,
            changelog_position=reached(overlay),
            restored_at=overlay.position(RESTORED_AT),
            purged=read_purged(about),
            operators=operators,
        )


def _databases(folder: Path) -> Iterator[tuple[int, Path]]:
    """The partitions of a hop that have a database here."""
    try:
        paths = [*folder.iterdir()] if folder.is_dir() else []
        found = [path for path in paths if path.name.isdecimal() and path.is_dir()]
    except OSError as problem:
        raise unreadable(folder, problem) from problem
    for path in found:
        yield int(path.name), path


def _size_bytes(folder: Path) -> int:
    """How much lies in a folder; a process that has it may delete a file meanwhile."""
    size_bytes = 0
    for file in folder.iterdir():
        with suppress(FileNotFoundError):
            size_bytes += file.stat().st_size
    return size_bytes


def _operators(spec: PipelineSpec, name: str | None) -> list[str]:
    """The names of those that are asked for, merges behind a repartition among them."""
    names = [policy.name or policy.kind for hop in spec.hops() for policy in hop.operators]
    if name is None:
        return names
    if name not in names:
        message = f"no operator is called `{name}`; there are {', '.join(names)}"
        raise SettingsInvalid(message)
    return [name]


def _bytes_of(key: str) -> bytes:
    if not key.startswith(_HEXADECIMAL):
        return key.encode(errors="surrogateescape")
    try:
        return bytes.fromhex(key.removeprefix(_HEXADECIMAL))
    except ValueError as error:
        message = f"`{key}` begins as hexadecimal and is none; write two digits a byte, as 0x6b31"
        raise SettingsInvalid(message) from error


def _nothing(
    spec: PipelineSpec, settings: Settings, partition: int | None, *, from_changelog: bool
) -> str:
    which = spec.pipeline if partition is None else f"partition {partition} of {spec.pipeline}"
    if from_changelog:
        return f"{which} has no changelog; let it run first, or check the name of the pipeline"
    return (
        f"there is no state of {which} in {settings.state_folder}; name the folder with"
        " --state-folder, or look at the changelogs with --from-changelog"
    )
