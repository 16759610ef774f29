"""Put variables of the environment into a job's file: `${NAME}` in any text.

As for a sidecar's settings, a variable with `_FILE` behind its name holds the path of a file with
the value, which is how secrets are mounted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path as File
from typing import Any

from headrace.contracts.problem_text import Path

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_FILE_SUFFIX = "_FILE"
Problems = list[tuple[Path, str]]


class _Missing(Exception):
    """A variable has no value."""


def with_variables(
    document: dict[str, Any], environment: Mapping[str, str]
) -> tuple[dict[str, Any], Problems]:
    """Return a document with the values of its variables, and a problem for each without one."""
    problems: Problems = []

    def filled(part: Any, path: Path) -> Any:
        if isinstance(part, dict):
            return {name: filled(each, (*path, name)) for name, each in part.items()}
        if isinstance(part, list):
            return [filled(each, (*path, number)) for number, each in enumerate(part)]
        if not isinstance(part, str):
            return part
        try:
            return _VARIABLE.sub(lambda match: _value_of(match[1], environment), part)
        except _Missing as error:
            problems.append((path, str(error)))
            return part

    found: dict[str, Any] = filled(document, ())
    return found, problems


def _value_of(name: str, environment: Mapping[str, str]) -> str:
    value, file = environment.get(name), environment.get(name + _FILE_SUFFIX)
    if value and file:
        message = f"{name}{_FILE_SUFFIX} and {name} are both set; remove one of the two"
        raise _Missing(message)
    if file:
        return _content_of(name + _FILE_SUFFIX, file)
    if not value:
        message = (
            f"the variable {name} is not set; set it, or {name}{_FILE_SUFFIX} to the path of a file"
            " with the value"
        )
        raise _Missing(message)
    return value


def _content_of(name: str, file: str) -> str:
    try:
        return File(file).read_text("utf-8").rstrip("\r\n")
    except OSError as error:
        message = f"{name}: `{file}` cannot be read ({error.strerror}); check path and permissions"
        raise _Missing(message) from error
    except UnicodeDecodeError as error:
        message = f"{name}: `{file}` is not UTF-8; save it as UTF-8"
        raise _Missing(message) from error
