"""Describe the errors in a file in sentences: what, where, and what to write instead.

    clicks.yaml:7:7: operators[1].deduplicate.interval: `10 minutes` is not a duration; write ...

Each problem is one line. The reader of the file passes the positions; this module knows nothing of
YAML, pipelines or jobs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic_core import ErrorDetails

Path = tuple[int | str, ...]
Places = Mapping[Path, tuple[int, int]]
"""Line and column, counted from 1, of every key and item of a document."""

_ALSO_CALLED: Mapping[str, tuple[str, ...]] = {
    "sql": ("query",),
    "select": ("query",),
    "columns": ("schema",),
    "ddl": ("schema",),
    "brokers": ("servers",),
    "bootstrap-servers": ("servers",),
    "inputs": ("streams",),
    "streams": ("inputs",),
    "input": ("source", "inputs"),
    "from": ("source", "inputs"),
    "output": ("sink",),
    "to": ("sink",),
    "target": ("sink",),
    "steps": ("operators",),
    "condition": ("where",),
    "name": ("pipeline",),
    "path": ("folder",),
    "trigger": ("every",),
    "dead-letter": ("dead",),
    "dead-letters": ("dead",),
}
"""Words of other systems, and of our other files, with the options that they may mean."""
_SHOWN_CHARACTERS_MAX = 60
_LINES_MAX = 20


def together(lines: Sequence[str]) -> str:
    """Join the problems of a file; of very many, only the first."""
    if len(lines) <= _LINES_MAX:
        return "\n".join(lines)
    more = f"and {len(lines) - _LINES_MAX} more problems; is it the right file?"
    return "\n".join([*lines[:_LINES_MAX], more])


def problem_line(path: Path, sentence: str, file: str, places: Places) -> str:
    """Return one problem with its place, as editors and compilers write it."""
    line, column = place_of(path, places)
    label = _label(path)
    return ": ".join([f"{file}:{line}:{column}", *([label] if label else []), sentence])


def place_of(path: Path, places: Places) -> tuple[int, int]:
    """Return the position of a path, or of the longest part of it that has one."""
    for length in range(len(path), 0, -1):
        if path[:length] in places:
            return places[path[:length]]
    return (1, 1)


def _label(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{shortened(step)}"
    return text.removeprefix(".")


def show(written: object) -> str:
    """Return what the user wrote, in one short line between backticks."""
    return f"`{shortened(written)}`"


def shortened(written: object) -> str:
    """Return what the user wrote, in one short line without backticks."""
    text = written if isinstance(written, str) else _as_json(written)
    text = text if text.isprintable() else json.dumps(text)
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = text[: _SHOWN_CHARACTERS_MAX - 3] + "..."
    return text


def _as_json(written: object) -> str:
    try:
        return json.dumps(written, default=str)
    except (TypeError, ValueError, RecursionError):
        # Python writes out no number of more than some thousand digits, and no list inside itself.
        return f"{type(written).__name__}, which cannot be shown"


def unknown(path: Path, known: Sequence[str], elsewhere: Sequence[str] = ()) -> str:
    """Return the sentence about an option that is not known in its place.

    `elsewhere` has the mappings in which it is known.
    """
    if near := meant(path, known, elsewhere):
        return f"{show(path[-1])} is not known here; did you mean `{near[-1]}`?"
    if elsewhere:
        return f"{show(path[-1])} is not known here; it is an option of {_either(elsewhere)}"
    if not known:
        return f"{show(path[-1])} is not known here; remove it"
    return f"{show(path[-1])} is not known here; known are {listed(known)}"


def meant(path: Path, known: Sequence[str], elsewhere: Sequence[str] = ()) -> Path:
    """Return the path of the option that a word means or misspells, empty where it does not."""
    *parents, word = path
    name = str(word)
    also = _ALSO_CALLED.get(name.lower().replace("_", "-").replace(".", "-"), ())
    near = [one for one in also if one in known]
    if not near and not elsewhere:
        near = get_close_matches(name, known, n=1)
    return (*parents, near[0]) if near else ()


def _either(places: Sequence[str]) -> str:
    *others, last = places
    return f"{', '.join(others)} or {last}" if others else last


def listed(names: Sequence[str]) -> str:
    """Join names with commas."""
    return ", ".join(f"`{name}`" for name in names)


def sentence_of(
    details: ErrorDetails,
    known: Sequence[str],
    examples: Mapping[str, str],
    elsewhere: Sequence[str] = (),
) -> str | None:
    """Return the sentence about an error of pydantic, None where our files cannot cause it."""
    name = str(details["loc"][-1]) if details["loc"] else ""
    example = f"`{examples[name]}`" if name in examples else ""
    match details["type"]:
        case "missing":
            return f"`{name}` is missing; add it" + (example and f", such as {example}")
        case "extra_forbidden":
            return unknown(details["loc"], known, elsewhere)
        case "model_type" | "model_attributes_type" | "dict_type":
            sentence = f"{show(details['input'])} is not a mapping of options"
            return sentence + (example and f"; write {example}")
        case "tuple_type" | "list_type":
            sentence = f"{show(details['input'])} is not a list"
            return sentence + (example and f"; write {example}")
        case _:
            pass
    write = _SENTENCES.get(details["type"])
    return None if write is None else write(details)


def _choice(details: ErrorDetails) -> str:
    expected = details["ctx"]["expected"].replace("'", "`")
    return f"{show(details['input'])} is none of the choices; write {expected}"


def _not_text(details: ErrorDetails) -> str:
    if details["input"] is None:
        return "nothing stands here; write text, or remove the line"
    if isinstance(details["input"], list | dict):
        return f"{show(details['input'])} is not text; write one text in its place"
    return f"{show(details['input'])} is not text; if it is meant as text, write it in quotes"


def _empty(_details: ErrorDetails) -> str:
    return "nothing stands between the quotes; write something, or remove the line"


def _not_name(details: ErrorDetails) -> str:
    return (
        f"{show(details['input'])} is not a name that Kafka accepts;"
        " write letters, digits, `.`, `_` and `-`, at most 80, beginning with a letter or digit"
        if details["loc"][-1] != "topic"
        else f"{show(details['input'])} is not a topic name that Kafka accepts;"
        " write letters, digits, `.`, `_` and `-`"
    )


def _too_long(details: ErrorDetails) -> str:
    characters_max = details["ctx"]["max_length"]
    return f"{show(details['input'])} is too long; write at most {characters_max} characters"


def _not_more(details: ErrorDetails) -> str:
    return f"{show(details['input'])} is not more than {details['ctx']['gt']}; write more"


def _too_small(details: ErrorDetails) -> str:
    return f"{show(details['input'])} is less than {details['ctx']['ge']}; write more"


def _too_large(details: ErrorDetails) -> str:
    return f"{show(details['input'])} is more than {details['ctx']['le']}; write less"


def _not_number(details: ErrorDetails) -> str:
    found = details["input"]
    if isinstance(found, str) and found.isdecimal():
        if found.startswith("0") and found != "0":
            return f"{show(found)} is text, since it begins with a zero; write it without"
        return f"{show(found)} is text; write the number without quotes"
    return f"{show(found)} is not a whole number; write one, such as 1000"


def _not_switch(details: ErrorDetails) -> str:
    return f"{show(details['input'])} is not a switch; write `true` or `false`"


def _own_words(details: ErrorDetails) -> str:
    said, found = str(details["ctx"]["error"]), details["input"]
    # One line cannot hold a long text.
    return said.replace(f"`{found}`", show(found)) if isinstance(found, str) else said


def _refused(details: ErrorDetails) -> str:
    return details["msg"]


_SENTENCES: dict[str, Callable[[Any], str]] = {
    "literal_error": _choice,
    "string_type": _not_text,
    "string_too_short": _empty,
    "string_pattern_mismatch": _not_name,
    "string_too_long": _too_long,
    "greater_than": _not_more,
    "greater_than_equal": _too_small,
    "less_than_equal": _too_large,
    "int_type": _not_number,
    "int_parsing": _not_number,
    "int_from_float": _not_number,
    "int_parsing_size": _not_number,
    "bool_type": _not_switch,
    "bool_parsing": _not_switch,
    "value_error": _own_words,
    "refused": _refused,
}
