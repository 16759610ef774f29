"""Least and greatest of a group, from which rows are taken back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.spark_jobs.versioned.totals import greatest, least, numbers_of, read_long, write_long

longs = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.tuples(longs | st.integers(0, 3), st.booleans()), max_size=30))
def test_the_values_that_are_left_tell_least_and_greatest(steps: list[tuple[int, bool]]) -> None:
    initial, add, subtract, form, _ = numbers_of(read_long)
    assert initial is not None
    assert form is not None
    numbers, left = initial(), list[int]()
    for number, goes in steps:
        if goes and left:
            numbers = subtract(b"g", write_long(left.pop(len(left) // 2)), numbers)
        else:
            left.append(number)
            numbers = add(b"g", write_long(number), numbers)
        stored = form.write(numbers)
        assert form.read(stored) == numbers
        found = least(b"g", stored), greatest(b"g", stored)
        expected = (write_long(min(left)), write_long(max(left))) if left else (None, None)
        assert found == expected
