"""Note in a checkpoint the options of the topology that wrote it, and check what may change.

The options are numbers by name in a task's header, so a decoded state shows them.
"""

from __future__ import annotations

from headrace.contracts.errors import StateOfOtherOptions
from headrace.contracts.record import NO_TIME_MS
from headrace.spark_jobs.versioned.history import forgotten_name
from headrace.spark_jobs.versioned.spread import (
    KINDS,
    LEFT_COLUMNS,
    LISTED,
    MEETS_AS,
    MEETS_BY,
    REGROUPS,
    RIGHT_COLUMNS,
)

STEP = "step:"
"""Begins the name of each step of a topology."""
_MARKS = (STEP, "option:")
INPUT = "option:input "
"""Begins the name of each input of a topology that reads topics."""
_MAY_CHANGE = ("grace_ms", "retention_ms", "inner", "left")
"""New values of grace and retention hold from now on, and so does the kind of a look-up."""

_HELD_COLUMNS = (f":{LEFT_COLUMNS}", f":{RIGHT_COLUMNS}")
"""End the names of options that tell which columns held records have."""
_NOTED_LATER = (REGROUPS, f":{MEETS_BY}", f":{MEETS_AS}", f":{KINDS}", *_HELD_COLUMNS)
"""Ends the names of options that older checkpoints lack."""
_WAS_OTHERWISE = {
    LISTED: "had other keys or none, and the table's rows of a key are where it says",
    MEETS_BY: "met by another column, which the records that it holds have as their keys",
    MEETS_AS: "met by a column of another type, or by times in another time zone of the session",
    KINDS: "had columns of other types, of which its open windows are",
    LEFT_COLUMNS: "had other columns of its left stream, which the records that it holds have",
    RIGHT_COLUMNS: "had other columns of its right stream, which the records that it holds have",
}


def keep_options(numbers: dict[str, int], wanted: dict[str, int]) -> list[str]:
    """Write the options into the numbers; return a sentence for each that changed.

    A new state takes any options. A change that the state cannot follow raises StateOfOtherOptions.
    """
    known = {name: number for name, number in numbers.items() if name.startswith(_MARKS)}
    if known == wanted:
        return []
    _refuse_other_inputs(known, wanted)
    said: list[str] = []
    if known:
        for name in sorted(_but_inputs(known) | _but_inputs(wanted)):
            before, now = known.get(name), wanted.get(name)
            is_noted_first = before is None and name.endswith(_NOTED_LATER)
            if before != now and not is_noted_first and not _are_held_still(name, before, now):
                said.append(_change(name, before, now, wanted))
                _note_forgotten(numbers, name, before, now)
    for name in known:
        del numbers[name]
    numbers.update(wanted)
    return said


def input_option(number: int, topic: str) -> str:
    """Return the option by which a checkpoint remembers the topic of an input."""
    return f"{INPUT}{number}:{topic}"


def _inputs(options: dict[str, int]) -> dict[str, str]:
    """Return the topics of a job by the names of its inputs; older checkpoints have none."""
    named = (name.split(":") for name in options if name.startswith(INPUT))
    return {number: topic for _, number, topic in named}


def _but_inputs(options: dict[str, int]) -> set[str]:
    return {name for name in options if not name.startswith(INPUT)}


def _are_held_still(name: str, before: int | None, now: int | None) -> bool:
    """Return whether held records have the columns of now; as they were read, they have all."""
    if not name.endswith(_HELD_COLUMNS) or before is None or now is None:
        return False
    return abs(before) == abs(now) or (before < 0 and now < 0)


def _refuse_other_inputs(known: dict[str, int], wanted: dict[str, int]) -> None:
    before, now = _inputs(known), _inputs(wanted)
    for number in sorted(before.keys() & now.keys()):
        if before[number] != now[number]:
            message = (
                f"{number} of this job was the topic `{before[number]}` when its checkpoint was"
                f" written, and is `{now[number]}` now, of which it knows nothing; run the job as"
                " it was, or start it with a new checkpoint"
            )
            raise StateOfOtherOptions(message)


def _note_forgotten(
    numbers: dict[str, int], name: str, before: int | None, now: int | None
) -> None:
    """Note what a retention had forgotten before it grew: growing brings nothing back."""
    _, step, option = name.split(":")
    if option == "retention_ms" and before is not None and now is not None and before < now:
        forgotten = forgotten_name(step)
        highest_ms = numbers.get(f"{step}:time_ms", NO_TIME_MS)
        numbers[forgotten] = max(numbers.get(forgotten, highest_ms - before), highest_ms - before)


def _change(name: str, before: int | None, now: int | None, wanted: dict[str, int]) -> str:
    mark, step, option = name.split(":")
    if mark == "step":
        had = "has no state of" if before is None else "has state of"
        message = (
            f"this checkpoint {had} the step `{step}` ({option}), and the job"
            f" {'has' if before is None else 'does not have'} it; run the job as it was, or start"
            " it with a new checkpoint"
        )
        raise StateOfOtherOptions(message)
    if option in _WAS_OTHERWISE:
        message = (
            f"when this checkpoint was written, `{step}` {_WAS_OTHERWISE[option]}; run the job as"
            " it was, or start it with a new checkpoint"
        )
        raise StateOfOtherOptions(message)
    looks_up = f"step:{step}:LookUp" in wanted
    kept = option == "retention_ms" and (before is None or now is None)
    if kept or option not in _MAY_CHANGE or (option in {"inner", "left"} and not looks_up):
        message = (
            f"`{step}` was `{option}` {_said(before)} when this checkpoint was written and is"
            f" {_said(now)} now, which its state cannot follow; run the job as it was, or start it"
            " with a new checkpoint"
        )
        raise StateOfOtherOptions(message)
    return f"`{step}`: `{option}` was {_said(before)} and is {_said(now)} from now on"


def _said(number: int | None) -> str:
    return "not set" if number is None else str(number)
