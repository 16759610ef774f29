"""Files that hold no pipeline, or not one that YAML can read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import PipelineInvalid
from headrace.contracts.yaml_text import parse_yaml
from headrace.services.cli.pipeline_file import FORM, load_pipeline

WHOLE = """\
pipeline: clicks
source: {topic: clicks.raw}
operators:
  - reorder: {grace: 30s}
sink: {topic: clicks.cleaned}
"""


def problem(tmp_path: Path, content: bytes | str) -> str:
    """Return the sentences about a file with this content, without the folder's name."""
    file = tmp_path / "clicks.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(PipelineInvalid) as error:
        load_pipeline(file)
    return str(error.value).replace(f"{tmp_path}{os.sep}", "")


def test_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "clicks.yaml"
    file.write_text("\ufeff" + WHOLE, encoding="utf-8")
    assert load_pipeline(file).pipeline == "clicks"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "clicks.yaml: the file is empty; begin it with `pipeline: clicks`"),
        ("# nothing\n", "clicks.yaml: the file is empty; begin it with `pipeline: clicks`"),
        ("- a\n", "clicks.yaml:1:1: the file holds a list, and a pipeline is a mapping;"),
        ("\nclicks\n", "clicks.yaml:2:1: the file holds a single value, and a pipeline is a"),
        ("a: [1,\n", "clicks.yaml:2:1: this is not YAML: "),
        ("a: b: c\n", "clicks.yaml:1:5: this is not YAML: mapping values are not allowed here;"),
        ("a:\n\tb: 1\n", "clicks.yaml:2:1: this is not YAML: found character '\\t' that cannot"),
        (
            "a: 1\n---\nb: 1\n",
            "clicks.yaml:2:1: a second document begins here, and a file holds one; move it into a",
        ),
        (
            "a: 'b\nc: d\n",
            "clicks.yaml:1:4: this is not YAML: a quote opens here and does not close",
        ),
        ("a: 1\nb: \x07\n", "clicks.yaml:2:4: this is not YAML: it has a control character;"),
        (
            'a: 1\nb: "\\UFFFFFFFF"\n',
            "clicks.yaml:2:7: this is not YAML: the number of a character, or of a version, is too",
        ),
        (
            'a: 1\nb: "\\U00110000"\n',
            "clicks.yaml:2:7: this is not YAML: the number of a character, or of a version, is too",
        ),
        (
            f"%YAML 1.{'9' * 5000}\n---\na: 1\n",
            "clicks.yaml:1:9: this is not YAML: the number of a character, or of a version, is too",
        ),
        ("a: *b\n", "clicks.yaml:1:4: this is not YAML: found undefined alias 'b'"),
        ("a: &b [*b]\n", "clicks.yaml:1:4: this alias stands inside of what it repeats;"),
        ("a: !!python/object:os.system x\n", "clicks.yaml:1:4: the tag `!!python/object:os."),
        ("a: !!int x\n", "clicks.yaml:1:4: the tag `!!int` is not known here;"),
        ("1: x\n", "clicks.yaml:1:1: a key is not a word;"),
        ("? [a]\n: x\n", "clicks.yaml:1:3: a key is not a word;"),
        ("[" * 5000, "clicks.yaml:1:51: this is nested deeper than 50 levels; check brackets"),
        (b"a: 1\nb: \xff\n", "clicks.yaml:2: the file is not UTF-8; save it as UTF-8"),
        ("a\n".encode("utf-16"), "clicks.yaml:1: the file is not UTF-8; save it as UTF-8"),
        (
            WHOLE + "pipeline: again\n",
            "clicks.yaml:6:1: `pipeline` stands here twice, first in line 1; remove one",
        ),
        (
            WHOLE.replace("30s", "30 s"),
            "clicks.yaml:4:15: operators[0].reorder.grace: `30 s` is not a duration;",
        ),
        (
            WHOLE.replace("grace: 30s", "grace: 1:30"),
            "clicks.yaml:4:15: operators[0].reorder.grace: `1:30` is not a duration;",
        ),
        (
            WHOLE.replace("30s", "30s, buffer: {records: 010, when-full: spill}"),
            "clicks.yaml:4:36: operators[0].reorder.buffer.records: `010` is text, since it begins",
        ),
        (
            WHOLE.replace("topic: clicks.raw", "timestamp: absent:when, topic: clicks.raw"),
            "clicks.yaml:2:10: source.timestamp: `absent:when`: there is no module `absent`",
        ),
        (
            WHOLE.replace("reorder: {grace: 30s}", "filter: {where: 'json:absent'}"),
            "clicks.yaml:4:14: operators[0].filter.where: `json:absent`: module `json` has no",
        ),
        (
            WHOLE.replace("reorder: {grace: 30s}", "aggregate: {function: json:loads}"),
            "clicks.yaml:4:17: operators[0].aggregate.function: `json:loads` has no initial and no",
        ),
        (
            WHOLE.replace("reorder: {grace: 30s}", "deduplicate: {by: id, id: no:x, interval: 1s}"),
            "clicks.yaml:4:27: operators[0].deduplicate.id: `no:x`: there is no module `no`",
        ),
    ],
)
def test_each_mistake_has_its_place_and_sentence(
    tmp_path: Path, content: bytes | str, expected: str
) -> None:
    assert problem(tmp_path, content).startswith(expected)


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        ('a: "\\U00110000"\n', "write a smaller one, `\\U0010FFFF` at most for a character"),
        (f"%YAML 1.{'9' * 5000}\n---\na: 1\n", "write a smaller one, `\\U0010FFFF` at most"),
        ("%YAML 3.0\n---\na: 1\n", "write `%YAML 1.2`, or remove the line"),
        ("a: [1,\n", "check quotes, brackets and indentation here and just above"),
    ],
)
def test_advice_about_yaml_helps_with_the_mistake_at_hand(
    tmp_path: Path, content: str, advice: str
) -> None:
    assert f"; {advice}" in problem(tmp_path, content)


@given(st.lists(st.sampled_from([*"abn10:,-[]{}&*!|>'\"%@?#~. \n\t", "\n  ", "- ", ": ", "!!"])))
def test_any_text_is_a_mapping_or_a_sentence(parts: list[str]) -> None:
    try:
        document, _ = parse_yaml("".join(parts), "clicks.yaml", FORM)
    except PipelineInvalid as error:
        (line,) = str(error).splitlines()
        assert line.startswith("clicks.yaml:")
    else:
        assert isinstance(document, dict)


def test_a_path_through_a_file_names_no_file(tmp_path: Path) -> None:
    (tmp_path / "clicks").write_text(WHOLE)
    with pytest.raises(PipelineInvalid, match=r"there is no such file; check the name and the fol"):
        load_pipeline(tmp_path / "clicks" / "clicks.yaml")


def test_all_functions_are_looked_for_at_once(tmp_path: Path) -> None:
    content = WHOLE.replace("reorder: {grace: 30s}", "aggregate: {function: no:f}")
    content = content.replace("topic: clicks.raw", "timestamp: no:x, topic: clicks.raw")
    assert len(problem(tmp_path, content).splitlines()) == 2


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PipelineInvalid, match="there is no such file; check the name"):
        load_pipeline(tmp_path / "absent.yaml")
    with pytest.raises(PipelineInvalid, match="this is a folder; name a file in it"):
        load_pipeline(tmp_path)
    with pytest.raises(PipelineInvalid, match="cannot be read"):
        load_pipeline(tmp_path / ("x" * 5000))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("null", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("010", "010"),
        ("1_000", "1_000"),
        ("10:30", "10:30"),
        ("1.5", 1.5),
        ("1e3", "1e3"),
        ("2026-01-01", "2026-01-01"),
        ("'12'", "12"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, expected: object) -> None:
    document, _ = parse_yaml(f"a: {text}\n", "f", FORM)
    assert document == {"a": expected}


def test_places_are_those_of_keys_and_items() -> None:
    text = "a:\n  - b: {c: 1}\n  - &x [2]\n  - *x\n"
    document, places = parse_yaml(text, "f", FORM)
    assert document == {"a": [{"b": {"c": 1}}, [2], [2]]}
    assert places == {
        ("a",): (1, 1),
        ("a", 0): (2, 5),
        ("a", 0, "b"): (2, 5),
        ("a", 0, "b", "c"): (2, 9),
        ("a", 1): (3, 5),
        ("a", 1, 0): (3, 9),
        ("a", 2): (3, 5),
        ("a", 2, 0): (3, 9),
    }
