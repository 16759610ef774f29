"""A wrong file gets one sentence, and the exit code 2, whatever the file."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chance import seed_of_run
from tests.nonsense import files
from tests.pages import installed

COUNT = 60


@pytest.fixture(autouse=True)
def nothing_is_left_of_other_tests() -> None:
    """Let Python find their garbage now: asyncio logs some, and the command would seem to."""
    gc.collect()


def test_a_wrong_file_is_one_sentence_with_its_place(tmp_path: Path) -> None:
    seed = seed_of_run()
    wrong = [
        (given.kind, found, said.err)
        for given in files.wrong_files(seed, COUNT, tmp_path)
        if (found := files.complaints(given, said := files.run(given, tmp_path)))
    ]
    assert wrong == [], f"seed {seed}"


def test_a_right_file_is_none_of_them(tmp_path: Path) -> None:
    seed = seed_of_run()
    for given in files.right_files(seed, COUNT // 5, tmp_path):
        said = files.run(given, tmp_path)
        assert (said.exit_code, said.err) == (0, ""), f"seed {seed}"


ALIKE = pytest.mark.long("random", why="the command beside it begins in the same way")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("plan",), "pipeline: clicks\nsource: !!python/name:os.system\n"),
        pytest.param(("run",), "- pipeline: clicks\n", marks=ALIKE),
        (("spark",), "job: nonsense_exits\n"),
        pytest.param(
            ("spark", "--print"), "\ufeffjob: orders-prices\nretention: 1h\0\n", marks=ALIKE
        ),
    ],
)
def test_so_it_is_in_a_process_of_its_own(
    tmp_path: Path, command: tuple[str, ...], text: str
) -> None:
    (tmp_path / "nonsense_exits.py").write_text("import sys; sys.exit(0)\n")
    path = tmp_path / "wrong.yaml"
    path.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [str(Path(sys.executable).with_name("headrace")), *command, str(path)],
        cwd=tmp_path,
        env=installed(),
        capture_output=True,
        text=True,
        check=False,
    )
    said = files.Said(done.returncode, done.stdout, done.stderr, 0.0)
    assert files.complaints(files.Given("own process", command, path), said) == [], done.stderr


def test_the_judge_finds_each_way_to_say_it_badly(tmp_path: Path) -> None:
    given = files.Given("wrong value", ("plan",), tmp_path / "a.yaml")

    def found(exit_code: int, out: str, *lines: str) -> list[str]:
        err = "".join(f"{line}\n" for line in lines)
        return files.complaints(given, files.Said(exit_code, out, err, 0.0))

    good = f"{given.path}:1:2: grace: `x` is not a duration; write 30s"
    assert found(2, "", good) == []
    assert found(0, "planned", good) == ["exit code 0", "it wrote to the standard output"]
    assert found(2, "", good, good) == ["2 sentences"]
    assert found(2, "", f"{given.path}: is wrong") == ["neither line nor column"]
    assert found(2, "", "is wrong") == ["no place"]
    assert found(2, "", f"{good} Input should be a valid string") == ["words of a library"]
    assert found(2, "", f"{good}\x1b[2J") == ["characters that cannot be printed"]
    (long,) = found(2, "", good + "x" * 500)
    assert long.endswith(" characters")
