"""Call a job's own functions; a fault in one of them fails one record at one step.

A function fails if it raises, or if it returns a value that no step can use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class StepFailed(Exception):
    """A step failed on a record; its cause is the exception of the function."""

    def __init__(self, step: str, function: Callable[..., Any]) -> None:
        self.step = step
        self.function = function
        self.place: int | None = None
        """The index, in the batch, of the arrival on which it failed."""
        super().__init__(f"a function of the step `{step}` failed")


EachAnswer: TypeAlias = (
    "Callable[[Iterable[tuple[Any, ...]]], tuple[list[bytes | None], dict[int, StepFailed]]]"
)
"""Calls a function once for each; answers in order, None for a failure, and failures by place."""


def of_step(
    step: str, function: Callable[Given, Any], use: Callable[[Any], Answer]
) -> Callable[Given, Answer]:
    """Wrap a function for a step; `use` takes its answers, and raises if it cannot use one."""

    def call(*given: Given.args, **named: Given.kwargs) -> Answer:
        try:
            return use(function(*given, **named))
        except (Exception, SystemExit) as error:
            raise StepFailed(step, function) from error

    return call


def of_step_for_all(
    step: str, function: Callable[..., Any], use: Callable[[Any], Answer]
) -> Callable[[Sequence[int], Iterable[tuple[Any, ...]]], list[Answer]]:
    """Wrap a function as `of_step` does, for many calls at once, each on behalf of an arrival."""

    def call_all(places: Sequence[int], given: Iterable[tuple[Any, ...]]) -> list[Answer]:
        answers: list[Answer] = []
        try:
            for one in given:
                answers.append(use(function(*one)))  # noqa: PERF401 (an error tells how many)
        except (Exception, SystemExit) as error:
            failed = StepFailed(step, function)
            failed.place = places[len(answers)]
            raise failed from error
        return answers

    return call_all


def of_step_for_each(
    step: str, function: Callable[..., Any], use: Callable[[Any], bytes | None]
) -> EachAnswer:
    """Wrap a function as `of_step` does, for many calls at once, each of which may fail alone."""

    def call_each(
        given: Iterable[tuple[Any, ...]],
    ) -> tuple[list[bytes | None], dict[int, StepFailed]]:
        answers: list[bytes | None] = []
        failures: dict[int, StepFailed] = {}
        for place, one in enumerate(given):
            try:
                answers.append(use(function(*one)))
            except (Exception, SystemExit) as error:  # noqa: BLE001 (a dead letter tells it)
                answers.append(None)
                failures[place] = failed = StepFailed(step, function)
                failed.__cause__ = error
        return answers, failures

    return call_each


def as_value(found: Any) -> bytes | None:
    """Return an answer that is a value, or None; raise TypeError for any other."""
    if found is None or type(found) is bytes:
        return found
    message = f"it answered {type(found).__name__}, not bytes or None"
    raise TypeError(message)


def as_it_is(found: Answer) -> Answer:
    """Return any answer; the step that asked can use whatever it is."""
    return found


def as_group(found: Any) -> tuple[bytes, bytes] | None:
    """Return an answer that is a group and a value, or None; raise TypeError for any other."""
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
    """Call once for each; return the answers, None for a failure, and the failures by place."""
    answers: list[bytes | None] = []
    failures: dict[int, StepFailed] = {}
    for place, one in enumerate(given):
        try:
            answers.append(call(*one))
        except StepFailed as failed:
            answers.append(None)
            failures[place] = failed
    return answers, failures
