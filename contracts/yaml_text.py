"""Read YAML as our files are written in it, and remember where everything stands.

Scalars are read as YAML 1.2 reads them: `no` is a word, `10:30` and `2026-01-01` are text. The
parser knows only YAML 1.1, which would make them false, 630 and a date. Tags other than those of
text, numbers, lists and mappings are refused. So is a document larger than any file of ours: a
kilobyte of aliases of aliases can expand to more than memory holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import BinaryIO, NamedTuple

import yaml

from headrace.contracts.errors import HeadraceError
from headrace.contracts.problem_text import Path as KeyPath
from headrace.contracts.problem_text import show

FILE_BYTES_MAX = 256 << 10
_VALUES_MAX = 5_000
_DEPTH_MAX = 50
LINE_CHARACTERS = 100
_TAG = "tag:yaml.org,2002:"


class Form(NamedTuple):
    """A kind of file."""

    called: str
    smallest: str
    """How the smallest such file begins."""
    refuse: Callable[[str], HeadraceError]
    """Makes an error out of a sentence about such a file."""


def read_text(open_file: Callable[[], BinaryIO], file: str, form: Form) -> str:
    """Return a file's text; raise the form's error where it cannot be read."""
    try:
        with open_file() as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            message = f"{file}: the file is larger than 256 KiB; {form.called} is a page or two"
            raise form.refuse(message)
        # A byte order mark, which some editors write, is not part of the text.
        return data.decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError) as error:
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
    """Parse a mapping out of YAML, with line and column of every key and item."""
    try:
        node = _composed(text)
    except yaml.YAMLError as error:
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


class _TooDeepError(yaml.MarkedYAMLError):
    """The document is nested deeper than any file of ours."""


class _Loader(yaml.SafeLoader):
    """Resolves scalars by YAML 1.2."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  # the parser's own attribute
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node with everything in it; refuse nesting that is too deep."""
        self.depth += 1
        if self.depth > _DEPTH_MAX:
            raise _TooDeepError(problem_mark=self.peek_event().start_mark)  # type: ignore[no-untyped-call]  # as PyYAML has it
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _composed(text: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
    except (ValueError, OverflowError) as error:
        # The parser asks Python for the character of any number, and for a version of any length.
        mark = loader.get_mark()
        raise yaml.MarkedYAMLError(problem=_TOO_LARGE, problem_mark=mark) from error
    finally:
        loader.dispose()
    return node


for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(rf"(?:{_pattern})$"), _first)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that either version of YAML would read as something else."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # the parser's own attribute
        first: [
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
            *_Loader.yaml_implicit_resolvers.get(first, []),
        ]
        for first in yaml.SafeDumper.yaml_implicit_resolvers | _Loader.yaml_implicit_resolvers
    }


def write_yaml(document: Mapping[str, object]) -> str:
    """Return a mapping as YAML, in the order of its keys; what has no mapping in it is one line."""
    written: str = yaml.dump(
        document,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=LINE_CHARACTERS,
        default_flow_style=None,
    )
    return written


class _Reader:
    """Turns the nodes of one document into Python values, and notes their places."""

    def __init__(self, file: str, form: Form) -> None:
        self.file = file
        self.form = form
        self.places: dict[KeyPath, tuple[int, int]] = {}
        self._open: list[yaml.Node] = []
        self._values = 0

    def read(self, node: yaml.Node, path: KeyPath) -> object:
        """Return a node's value; `path` is where it stands."""
        if any(node is outer for outer in self._open):
            raise self._invalid(node, "this alias stands inside of what it repeats; write it out")
        self._values += 1
        if self._values > _VALUES_MAX:
            sentence = (
                f"this is more than {_VALUES_MAX} values, aliases written out;"
                f" {self.form.called} is a page or two"
            )
            raise self._invalid(node, sentence)
        self._open.append(node)
        try:
            return self._read(node, path)
        finally:
            self._open.pop()

    def _read(self, node: yaml.Node, path: KeyPath) -> object:
        if isinstance(node, yaml.MappingNode):
            return self.read_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, "seq")
            items = []
            for index, item in enumerate(node.value):
                self.places[(*path, index)] = _position(item)
                items.append(self.read(item, (*path, index)))
            return items
        return self._read_scalar(node)

    def read_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        """Return a mapping's value; refuse a key that stands there twice."""
        self._check_tag(node, "map")
        mapping: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self._read_scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise self._invalid(key_node, "a key is not a word; check the indentation")
            if key in mapping:
                line, _ = self.places[(*path, key)]
                sentence = f"{show(key)} stands here twice, first in line {line}; remove one"
                raise self._invalid(key_node, sentence)
            self.places[(*path, key)] = _position(key_node)
            mapping[key] = self.read(value_node, (*path, key))
        return mapping

    def _read_scalar(self, node: yaml.Node) -> object:
        if node.tag == f"{_TAG}str":
            return self._checked(node)
        loader = _Loader("")
        try:
            plain: str = loader.resolve(  # type: ignore[no-untyped-call]  # as PyYAML has it
                yaml.ScalarNode, node.value, (True, False)
            )
            self._check_tag(node, plain)
            return loader.construct_object(node)
        except ValueError as error:
            # Python refuses to read a number of more than some thousand digits.
            sentence = f"{show(node.value)} is too long for a number; write a shorter one"
            raise self._invalid(node, sentence) from error
        finally:
            loader.dispose()

    def _checked(self, node: yaml.Node) -> str:
        text: str = node.value
        if "\0" in text or any("\ud800" <= each <= "\udfff" for each in text):
            sentence = f"{show(text)} holds a character that stands in no text; remove it"
            raise self._invalid(node, sentence)
        return text

    def _check_tag(self, node: yaml.Node, expected: str) -> None:
        if node.tag.removeprefix(_TAG) != expected.removeprefix(_TAG):
            tag = node.tag.replace(_TAG, "!!")
            raise self._invalid(node, f"the tag {show(tag)} is not known here; remove it")

    def _invalid(self, node: yaml.Node, sentence: str) -> HeadraceError:
        line, column = _position(node)
        return self.form.refuse(f"{self.file}:{line}:{column}: {sentence}")


def _position(node: yaml.Node) -> tuple[int, int]:
    mark = node.start_mark
    return (mark.line + 1, mark.column + 1)


def _not_yaml(error: yaml.YAMLError, text: str, file: str) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        what = "it has a control character; remove it"
        return f"{file}:{line}:{column}: this is not YAML: {what}"
    assert isinstance(error, yaml.MarkedYAMLError)
    problem = str(error.problem)
    # The parser notices an open quote where the text ends, however far that is below the quote.
    is_quote = error.context == _IN_QUOTES and problem in _ENDS
    mark = error.context_mark if is_quote else error.problem_mark
    assert mark is not None
    place = f"{file}:{mark.line + 1}:{mark.column + 1}"
    if isinstance(error, _TooDeepError):
        return f"{place}: this is nested deeper than {_DEPTH_MAX} levels; check brackets"
    if is_quote:
        return f"{place}: this is not YAML: a quote opens here and does not close; close it"
    if problem == _SECOND_DOCUMENT:
        sentence = (
            "a second document begins here, and a file holds one; move it into a file of its own"
        )
        return f"{place}: {sentence}"
    problem = _in_words(problem)
    hint = "indent with spaces" if "\\t" in problem else _HINTS.get(problem, _YAML_HINT)
    return f"{place}: this is not YAML: {problem}; {hint}"


def _in_words(problem: str) -> str:
    """Return the parser's problem in plain words, without its own names for things."""
    for pattern, words in _WORDS:
        if re.search(pattern, problem):
            return words
    return problem


_TOO_LARGE = "the number of a character, or of a version, is too large"
_UNKNOWN_VERSION = "its version is not known"
_WORDS = (
    (r"expected <block end>", "this does not go on what stands above it"),
    (r"expected ',' or '\]'", "a list is not closed by `]`"),
    (r"expected ',' or '\}'", "a mapping is not closed by `}`"),
    (r"expected '<document start>'", "the document has ended before this"),
    (r"expected the node content", "a value is missing"),
    (r"could not find expected ':'", "a key has no `:` behind it"),
    (r"incompatible YAML document|unknown directive", _UNKNOWN_VERSION),
)
_IN_QUOTES = "while scanning a quoted scalar"
_ENDS = {"found unexpected end of stream", "found unexpected document separator"}
_SECOND_DOCUMENT = "but found another document"
_HINTS = {
    _TOO_LARGE: "write a smaller one, `\\U0010FFFF` at most for a character",
    _UNKNOWN_VERSION: "write `%YAML 1.2`, or remove the line",
}
_YAML_HINT = "check quotes, brackets and indentation here and just above"
