"""A reset forgets what a pipeline has: offsets, internal topics, and state on this machine."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from headrace.contracts.errors import GroupBusy, SettingsInvalid, StateUnavailable
from headrace.contracts.hops import FILES_BESIDE_HOPS
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.time import format_duration_ms
from headrace.services.kafka.cluster import connected
from headrace.services.runtime.machine.folder import held, unreadable
from headrace.services.settings import Settings
from headrace.services.state.rocks import ASIDE

_INTERNAL = ("changelog", "repartition")
_CLEANED = ("cleaned", "progress")
_GONE = ".deleted"
"""A folder for what is about to be deleted; no hop can have its name."""


class Remains(NamedTuple):
    """The offsets, topics and folder that a reset would delete."""

    group: str
    offsets: int
    """How many partitions the group has committed offsets of."""
    topics: dict[str, int]
    """Each topic, with at most how many records."""
    folder: Path | None


async def find_remains(spec: PipelineSpec, settings: Settings, *, cleaned: bool) -> Remains:
    """Return what a reset would delete.

    Raises:
        GroupBusy: An instance of the pipeline runs.
    """
    roles = _INTERNAL + (_CLEANED if cleaned else ())
    names = [topic.name for topic in spec.topics() if topic.role in roles]
    folder = folder_of(spec, settings)
    async with connected(settings) as cluster:
        members = await cluster.members(spec.pipeline)
        if members:
            session = format_duration_ms(settings.session_timeout_ms)
            message = (
                f"the pipeline `{spec.pipeline}` is running ({', '.join(members)}); stop all its"
                f" instances, and try again; one that has an instance id counts for {session} more"
            )
            raise GroupBusy(message)
        topics = {}
        for name in await cluster.partitions(names):
            topics[name] = sum(one.end - one.first for one in (await cluster.ends(name)).values())
        offsets = await cluster.offsets_count(spec.pipeline)
    return Remains(spec.pipeline, offsets, topics, folder)


def folder_of(spec: PipelineSpec, settings: Settings) -> Path | None:
    """Return the folder of a pipeline's state on this machine, None if there is none.

    A folder of that name may be somebody's work: who names no state folder, or `.`, often stands
    where the pipeline's own functions are.
    """
    folder = settings.state_folder / spec.pipeline
    try:
        if not folder.exists():
            return None
        foreign = _foreign_in(folder)
    except OSError as problem:
        raise unreadable(folder, problem) from problem
    if foreign is not None:
        message = (
            f"the folder {folder} has `{foreign}`, which is not of headrace, so this is no folder"
            " of state; name the right one with --state-folder"
        )
        raise SettingsInvalid(message)
    return folder


def _foreign_in(folder: Path) -> str | None:
    """Return a path in a folder that no sidecar makes, None if there is none."""
    for path in sorted(folder.iterdir()):
        if path.name in {*FILES_BESIDE_HOPS, _GONE}:
            continue
        if not path.is_dir():
            return path.name
        for partition in sorted(path.iterdir()):
            if not partition.name.removesuffix(ASIDE).isdecimal():
                return f"{path.name}/{partition.name}"
    return None


async def forget(remains: Remains, settings: Settings) -> None:
    """Delete what was found; whoever is interrupted in it can do it again.

    The group goes first: a pipeline with its state and without offsets reads from the beginning and
    skips what it knows, while one with offsets and without its state lets duplicates pass.

    Raises:
        StateLocked: An instance has the folder. One that is about to join, or that was counted out
            while it was frozen, is no member of the group.
    """
    with nullcontext() if remains.folder is None else held(remains.folder):
        async with connected(settings) as cluster:
            await cluster.delete_group(remains.group)
            if remains.folder is not None:
                _delete(remains.folder)
            await cluster.delete(list(remains.topics))


def _delete(folder: Path) -> None:
    """Delete a pipeline's folder; whoever is killed in it leaves no database without its logs."""
    if folder.is_symlink():
        message = f"`{folder}` cannot be deleted: it is a link; delete it by hand, and try again"
        raise StateUnavailable(message)
    gone = folder / _GONE
    try:
        if gone.exists():
            shutil.rmtree(gone)
        gone.mkdir()
        for path in folder.iterdir():
            if path != gone:
                path.rename(gone / path.name)
        shutil.rmtree(folder)
    except OSError as error:
        message = (
            f"`{error.filename or folder}` cannot be deleted ({error.strerror});"
            " check its permissions, and try again"
        )
        raise StateUnavailable(message) from error
