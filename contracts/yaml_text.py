"""Read YAML as our files are written in it, and remember where everything stands.

Scalars are read as YAML 1.2 reads them: `no` is a word, `10:30` and `2026-01-01` are text. YAML
1.1, which the parser knows, would make them false, 630 and a date.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import yaml

from contracts.errors import HeadraceError
from contracts.pipeline_text import Path as KeyPath


class Form(NamedTuple):
    """A kind of file."""

    called: str
    smallest: str
    """How the smallest of them begins."""
    refuse: Callable[[str], HeadraceError]
    """Makes the error of a sentence about one."""


def read_text(read: Callable[[], bytes], file: str, form: Form) -> str:
    """What a file says."""
    try:
        # A byte order mark, which some editors write, is not part of the text.
        return read().decode("utf-8-sig")
    except FileNotFoundError as error:
        message = f"{file}: there is no such file; check the name and the folder"
        raise form.refuse(message) from error
    except IsADirectoryError as error:
        message = f"{file}: this is a folder; name a file in it"
        raise form.refuse(message) from error
    except OSError as error:
        message = f"{file}: cannot be read ({error.strerror}); check its permissions"
        raise form.refuse(message) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        message = f"{file}:{line}: the file is not UTF-8; save it as UTF-8"
        raise form.refuse(message) from error


def parse_yaml(
    text: str, file: str, form: Form
) -> tuple[dict[str, object], dict[KeyPath, tuple[int, int]]]:
    """A mapping out of YAML, with line and column of every key and item."""
    try:
        node = yaml.compose(text, _Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise form.refuse(_not_yaml(error, text, file)) from error
    if node is None:
        message = f"{file}: the file is empty; begin it with `{form.smallest}`"
        raise form.refuse(message)
    if not isinstance(node, yaml.MappingNode):
        found = "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
        line, column = _position(node)
        message = (
            f"{file}:{line}:{column}: the file holds {found}, and {form.called} is a mapping;"
            f" begin it with `{form.smallest}`"
        )
        raise form.refuse(message)
    reader = _Reader(file, form)
    return reader.read_mapping(node, ()), reader.places


class _Loader(yaml.SafeLoader):
    """YAML 1.2's idea of what is not text."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  # the parser's own attribute


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})$"), _first
    )


class _Reader:
    """Walks a document once."""

    def __init__(self, file: str, form: Form) -> None:
        self.file = file
        self.form = form
        self.places: dict[KeyPath, tuple[int, int]] = {}
        self._open: list[yaml.Node] = []

    def read(self, node: yaml.Node, path: KeyPath) -> object:
        """What a node says; `path` is where it stands."""
        if any(node is outer for outer in self._open):
            raise self._invalid(node, "this alias stands inside of what it repeats; write it out")
        self._open.append(node)
        try:
            return self._read(node, path)
        finally:
            self._open.pop()

    def _read(self, node: yaml.Node, path: KeyPath) -> object:
        if isinstance(node, yaml.MappingNode):
            return self.read_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.places[(*path, index)] = _position(item)
                items.append(self.read(item, (*path, index)))
            return items
        return self._read_scalar(node)

    def read_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        """What a mapping says, each key once."""
        mapping: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self._read_scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise self._invalid(key_node, "a key is not a word; check the indentation")
            if key in mapping:
                line, _ = self.places[(*path, key)]
                sentence = f"`{key}` stands here twice, first in line {line}; remove one"
                raise self._invalid(key_node, sentence)
            self.places[(*path, key)] = _position(key_node)
            mapping[key] = self.read(value_node, (*path, key))
        return mapping

    def _read_scalar(self, node: yaml.Node) -> object:
        loader = _Loader("")
        try:
            return loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            sentence = f"`{node.value}` cannot be read as {node.tag}; write plain text or a number"
            raise self._invalid(node, sentence) from error
        finally:
            loader.dispose()

    def _invalid(self, node: yaml.Node, sentence: str) -> HeadraceError:
        line, column = _position(node)
        return self.form.refuse(f"{self.file}:{line}:{column}: {sentence}")


def _position(node: yaml.Node) -> tuple[int, int]:
    mark = node.start_mark
    return (mark.line + 1, mark.column + 1)


def _not_yaml(error: yaml.YAMLError | RecursionError, text: str, file: str) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        place = f"{file}:{error.problem_mark.line + 1}:{error.problem_mark.column + 1}"
        hint = "indent with spaces" if "\\t" in str(error.problem) else _YAML_HINT
        return f"{place}: this is not YAML: {error.problem}; {hint}"
    if isinstance(error, yaml.reader.ReaderError):
        line = text[: error.position].count("\n") + 1
        return f"{file}:{line}: this is not YAML: it has a control character; remove it"
    return f"{file}: this is not YAML that can be read; is it nested too deeply?"


_YAML_HINT = "check quotes, brackets and indentation here and just above"
