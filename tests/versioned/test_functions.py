"""A function of the job's own that fails says of which step it is, whatever it raises."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from headrace.spark_jobs.versioned.functions import StepFailed, as_value, of_step


def leave(_value: bytes) -> bytes:
    """A function that takes itself for a program."""
    sys.exit("enough")


def divide(value: bytes) -> bytes:
    """A function with a mistake in it."""
    return b"%d" % (1 // len(value))


@pytest.mark.parametrize(("function", "raised"), [(leave, SystemExit), (divide, ZeroDivisionError)])
def test_a_functions_error_is_the_failure_of_its_step(
    function: Callable[[bytes], bytes], raised: type[BaseException]
) -> None:
    with pytest.raises(StepFailed, match="the step `price`") as failed:
        of_step("price", function, as_value)(b"")
    assert isinstance(failed.value.__cause__, raised)


def test_an_answer_that_no_step_can_use_is_a_failure_too() -> None:
    with pytest.raises(StepFailed) as failed:
        of_step("price", len, as_value)(b"")
    assert isinstance(failed.value.__cause__, TypeError)
