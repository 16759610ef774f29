"""A job's own functions: what one of them does wrong is the failure of one record at one step.

A function fails that raises, and one that answers what no step can use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class StepFailed(Exception):
    """A step failed on a record; what was raised is its cause."""

    def __init__(self, step: str, function: Callable[..., Any]) -> None:
        self.step = step
        self.function = function
        self.place: int | None = None
        """The index, in the batch, of the arrival that was being taken."""
        super().__init__(f"a function of the step `{step}` failed")


def of_step(
    step: str, function: Callable[Given, Any], use: Callable[[Any], Answer]
) -> Callable[Given, Answer]:
    """The function as a step calls it; `use` takes its answers, and raises where it cannot."""

    def call(*given: Given.args, **named: Given.kwargs) -> Answer:
        try:
            return use(function(*given, **named))
        except (Exception, SystemExit) as error:
            raise StepFailed(step, function) from error

    return call


def as_value(found: Any) -> bytes | None:
    """An answer that is a value, or none."""
    if found is None or type(found) is bytes:
        return found
    message = f"it answered {type(found).__name__}, not bytes or None"
    raise TypeError(message)


def as_group(found: Any) -> tuple[bytes, bytes] | None:
    """An answer that is a group and a value there, or none."""
    if found is None:
        return None
    group, value = found
    if type(group) is bytes and type(value) is bytes:
        return group, value
    message = f"it answered {type(group).__name__} and {type(value).__name__}, not bytes and bytes"
    raise TypeError(message)


def each_answer(
    call: Callable[..., bytes | None], given: Iterable[tuple[Any, ...]]
) -> tuple[list[bytes | None], dict[int, StepFailed]]:
    """What a call answers to each of these, None where it fails; and its failures by place."""
    answers: list[bytes | None] = []
    failures: dict[int, StepFailed] = {}
    for place, one in enumerate(given):
        try:
            answers.append(call(*one))
        except StepFailed as failed:
            answers.append(None)
            failures[place] = failed
    return answers, failures
