"""A model's JSON Schema as a table for people: an option a row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.contracts.time import format_duration_ms

Schema = Mapping[str, Any]
_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
    "object": "a mapping",
    "array": "a list",
    "null": "",
}
_FORMATS = {"path": "a path", "password": "text, secret"}
_DURATION, _SIZE = "30s", "64MiB"
_BY_EXAMPLE = (("never", "a duration, or `never`"), (_DURATION, "a duration"), (_SIZE, "a size"))
"""Examples stand for a value that is no plain number."""


def option_rows(
    schema: Schema, definitions: Mapping[str, Schema], name_of: Callable[[str], str]
) -> list[str]:
    """The table of a schema's options, as lines of Markdown."""
    required = schema.get("required", [])
    lines = ["| option | what stands there | if absent | what it means |", "|---|---|---|---|"]
    for name, option in schema.get("properties", {}).items():
        absent = "must be said" if name in required else _absent(option)
        meaning = described(option, definitions)
        lines.append(f"| `{name_of(name)}` | {form_of(option)} | {absent} | {meaning} |")
    return lines


def form_of(option: Schema) -> str:
    """Return the allowed values, in words."""
    if "$ref" in option:
        name = option["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in option:
        return f"`{option['const']}`"
    if "enum" in option:
        return ", ".join(f"`{one}`" for one in option["enum"])
    for several in ("anyOf", "oneOf"):
        if several in option:
            return ", ".join(filter(None, map(form_of, option[several])))
    by_example = next((form for one, form in _BY_EXAMPLE if one in option.get("examples", [])), "")
    return by_example or _FORMATS.get(option.get("format", ""), _KINDS[option["type"]])


def described(option: Schema, definitions: Mapping[str, Schema]) -> str:
    """Return an option's meaning in one line; its type's, if it has none of its own."""
    text = option.get("description", "")
    if not text and "$ref" in option:
        text = definitions[option["$ref"].rpartition("/")[2]].get("description", "")
    return " ".join(text.split()).replace("|", "\\|")


def _absent(option: Schema) -> str:
    if "default" not in option:
        return "see there" if not option.get("description") else ""
    default = option["default"]
    if default is None or default in ({}, []):
        return ""
    if isinstance(default, dict) and not any(value is not None for value in default.values()):
        return ""
    forms = set(_examples(option))
    if _DURATION in forms or "never" in forms:
        return f"`{format_duration_ms(default)}`"
    if _SIZE in forms:
        return f"`{default >> 20}MiB`"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _examples(option: Schema) -> Iterator[str]:
    yield from option.get("examples", [])
    for one in option.get("anyOf", []):
        yield from _examples(one)
