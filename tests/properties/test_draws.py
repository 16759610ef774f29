"""Property tests of every commit draw the same examples in every process."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from sys import modules

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def _drawn() -> list[list[int]]:
    found: list[list[int]] = []

    @settings(settings.get_profile("ci"), database=None)
    @given(st.lists(st.integers(), min_size=20))
    def draw(numbers: list[int]) -> None:
        found.append(numbers)

    draw()
    return found


def test_draws_do_not_depend_on_the_modules_that_a_process_has_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _drawn()
    file = tmp_path / "somebodys.py"
    file.write_text("".join(f"_{number} = {number * 7919}\n" for number in range(1_000, 1_100)))
    spec = spec_from_file_location("somebodys", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(modules, "somebodys", module)
    spec.loader.exec_module(module)
    assert _drawn() == before
