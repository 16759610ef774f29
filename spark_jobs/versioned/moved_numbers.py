"""The numbers of a task's header in other tasks: what becomes of each when its keys are moved.

    options                  the same; of options that tasks noted differently, the highest
    progress, open windows   the same in all tasks, before and after
    stream times             the highest: time does not go back for any key
    numbers that order rows  the highest: what comes later has a higher one for each key
    counters                 the sum, in the first task
    rows and bytes of tables what the task has got

A record that is held is counted as taken where it is, so that each task balances. Tasks that are
not at one progress are refused: rows that one has released would leave again, or never.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.contracts.errors import StateCorrupt, StateLayoutNewer, StateOfOtherOptions
from headrace.spark_jobs.versioned.history import forgotten_name
from headrace.spark_jobs.versioned.progress import STORED_KINDS
from headrace.spark_jobs.versioned.spread import HOT_KEYS, REGROUPS, TASKS_BY_KEY
from headrace.spark_jobs.versioned.state import VERDICTS
from headrace.spark_jobs.versioned.table_rows import PREFIX as TABLE_PREFIX
from headrace.spark_jobs.versioned.window_fold import is_of_one_window

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    Numbers = Mapping[str, int]

_LONG_MAX = (1 << 63) - 1
_STEP, _OPTION = "step:", "option:"
_RETENTION = ":retention_ms"
_IN_ONE_TASK = ("ForeignKeyStep", "AggregateStep")
"""The steps that send rows to other tasks, in a state of one task, which has no stages."""
_STAGES = ("AskStep", "AnswerStep", "AnsweredStep", "PartStep", "FoldedStep")
_ALIKE = ("progress_ms", "first-open")
_STANDING, _FORGONE = ":standing", "forgone"
_HIGHEST = ("time_ms", "forgotten_ms")
_COUNTED = {"taken", "late", "corrected", "expired", *VERDICTS}
_OF_THE_TASK = {"records", "dead", "late_total_ms", "merged"}


@dataclass
class Placed:
    """The rows that one of the new tasks has got."""

    held: Counter[str] = field(default_factory=Counter)
    """How many records are held, by the name of their rows."""
    tables: Counter[str] = field(default_factory=Counter)
    """The bytes of each table of which the task has rows.

    One of them is a window's if the task has groups of it."""
    standing: Counter[str] = field(default_factory=Counter)
    """How many values stand in a group, by the name of their rows."""


def tasks_before(headers: Collection[Numbers]) -> int:
    """Return how many tasks a state has; refuse one that cannot be moved."""
    if any(name.startswith(f"{_OPTION}{HOT_KEYS}:") for numbers in headers for name in numbers):
        message = (
            "this checkpoint was written with `hot-keys`, whose rows and waiting records are in all"
            " tasks, and such state is not moved; keep its number of tasks, or start the job with a"
            " new checkpoint"
        )
        raise StateOfOtherOptions(message)
    found = {numbers.get(TASKS_BY_KEY) for numbers in headers}
    tasks = found.pop() if len(found) == 1 else None
    if tasks is None:
        message = (
            "the tasks of this checkpoint are partitions of its topics, or it is of a version that"
            " did not note their number, so its keys are not known to be in tasks of their own;"
            " start the job with a new checkpoint"
        )
        raise StateOfOtherOptions(message)
    return tasks


def refuse_other_stages(headers: Collection[Numbers], tasks: int) -> None:
    """Refuse to move into one task, or out of it, what has other stages there.

    Refuse groups in windows whose records have other keys, by which they are spread.
    """
    kinds = _STAGES if tasks == 1 else _IN_ONE_TASK
    for numbers in headers:
        for name in numbers:
            _, _, kind = name.rpartition(":")
            if name.startswith(_STEP) and kind in kinds:
                message = (
                    f"`{name.split(':')[1]}` sends rows to other tasks, and a job with one task"
                    " keeps its state otherwise; choose two tasks or more, or start the job with a"
                    " new checkpoint"
                )
                raise StateOfOtherOptions(message)
            if name.startswith(_OPTION) and name.endswith(REGROUPS):
                message = (
                    f"`{name.split(':')[1]}` folds records into groups that do not have the keys by"
                    " which its records go to tasks, so it is not known to which tasks its groups"
                    " go; start the job with a new checkpoint"
                )
                raise StateOfOtherOptions(message)


def held_names(headers: Collection[Numbers]) -> set[str]:
    """Return the names of held records."""
    suffix = ":slice_ms"
    return {
        name.removesuffix(suffix)
        for numbers in headers
        for name in numbers
        if name.endswith(suffix) and not name.startswith(_OPTION)
    }


def moved_numbers(headers: Sequence[Numbers], placed: Sequence[Placed]) -> list[dict[str, int]]:
    """Return the numbers of each new task."""
    held = held_names(headers)
    values: dict[str, list[int]] = defaultdict(list)
    for numbers in headers:
        for name, number in numbers.items():
            values[name].append(number)
    each: dict[str, int] = {}
    first: dict[str, int] = {}
    folded: dict[str, int] = {}
    for name, found in values.items():
        if is_of_one_window(name):
            folded[name] = sum(found)
        elif _is_counted_anew(name, held):
            continue
        elif _is_alike(name):
            each[name] = _same(name, found, len(headers))
        elif _is_highest(name, held):
            each[name] = max(found)
        else:
            first[name] = _counted(name, found)
    each |= {TASKS_BY_KEY: len(placed), **_forgotten(headers, each)}
    return _of_tasks(placed, folded, each, first)


def _of_tasks(
    placed: Sequence[Placed],
    folded: Mapping[str, int],
    each: dict[str, int],
    first: dict[str, int],
) -> list[dict[str, int]]:
    """Return the numbers of each task, records that wait counted where they are."""
    tasks = [{**each, **(first if task == 0 else {})} for task in range(len(placed))]
    for name, count in folded.items():
        # The number does not tell groups apart, and a window without a number would not leave.
        table = _table_of(name)
        has_groups = [task for task, place in enumerate(placed) if table in place.tables]
        if not has_groups:
            message = (
                f"the rows of the window `{name}` of this state are gone; start the query from an"
                " older or a new checkpoint"
            )
            raise StateCorrupt(message)
        for task in has_groups:
            tasks[task][name] = 0
        tasks[has_groups[0]][name] = count
        _take(tasks, name.split(":")[1], has_groups[0], count)
    for task, place in enumerate(placed):
        for table, count in place.standing.items():
            tasks[task][_forgone_of(table)] = count
        for held, count in place.held.items():
            _take(tasks, held.rpartition(":")[0], task, count)
    return tasks


def _take(tasks: Sequence[dict[str, int]], step: str, task: int, count: int) -> None:
    """Count records as taken by a task, and no longer by the first one."""
    if task == 0 or not count:
        return
    taken = f"{step}:taken"
    tasks[0][taken] -= count
    tasks[task][taken] = tasks[task].get(taken, 0) + count


def _forgotten(headers: Collection[Numbers], each: Numbers) -> dict[str, int]:
    """Return the times before which stores forgot in a task with a shorter retention."""
    forgotten: dict[str, int] = {}
    for numbers in headers:
        for name, retention_ms in numbers.items():
            if not (name.startswith(_OPTION) and name.endswith(_RETENTION)):
                continue
            store = name.split(":")[1]
            time_ms = numbers.get(f"{store}:time_ms")
            if time_ms is not None and retention_ms < each[name]:
                noted = forgotten_name(store)
                before = forgotten.get(noted, each.get(noted, time_ms - retention_ms))
                forgotten[noted] = max(before, time_ms - retention_ms)
    return forgotten


def _table_of(window: str) -> str:
    """Return the name of the table of a window's groups, by the name of its number."""
    _, step, number = window.split(":")
    return f"{step}-{number}"


def is_standing(table: str) -> bool:
    """Return whether a table has the values that stand in groups."""
    return table.endswith(_STANDING)


def _forgone_of(standing: str) -> str:
    """Return the name of the number of values that stand in groups."""
    return f"{standing.removesuffix(_STANDING)}:{_FORGONE}"


def _same(name: str, found: list[int], headers: int) -> int:
    if len(found) == headers and len(set(found)) == 1:
        return found[0]
    message = (
        f"the tasks of this checkpoint do not agree on `{name}`; let the job finish a micro-batch"
        " with records of each input, and move it then"
    )
    raise StateOfOtherOptions(message)


def _is_alike(name: str) -> bool:
    """Return whether a number must be the same in all tasks."""
    kind, _, _ = name.partition(":")
    return name == "buckets" or kind in STORED_KINDS or name.rpartition(":")[2] in _ALIKE


def _is_counted_anew(name: str, held: set[str]) -> bool:
    """Return whether a number says how many rows of a kind a task has."""
    owner, _, last = name.rpartition(":")
    is_of_rows = name.startswith(TABLE_PREFIX) or last == _FORGONE
    return is_of_rows or (owner in held and last in {"records", "bytes"})


def _is_highest(name: str, held: set[str]) -> bool:
    """Return whether the highest number of a task holds for all."""
    owner, _, last = name.rpartition(":")
    return (
        name.startswith((_STEP, _OPTION))
        or last in _HIGHEST
        or name in {"task:arrivals", "task:sequence"}
        or (owner in held and last in {"arrivals", "slice_ms"})
    )


def _counted(name: str, found: list[int]) -> int:
    """Return the number of a counter over all tasks."""
    owner, _, last = name.rpartition(":")
    if name == "task:late_max_ms":
        return max(found)
    of_task = owner == "task" and last in _OF_THE_TASK
    if of_task or last in _COUNTED or ":dropped:" in name:
        return min(sum(found), _LONG_MAX)
    message = (
        f"this headrace does not know what the number `{name}` of a state means in other tasks;"
        " upgrade headrace, or start the job with a new checkpoint"
    )
    raise StateLayoutNewer(message)
