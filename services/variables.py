"""The variables of the environment, and the files that they name, from which settings are read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

PREFIX = "HEADRACE_"
FILE_SUFFIX = "_FILE"
_UNITS = ("_ms", "_bytes")
_NEAR = 0.85
"""Likeness from which a name is a misspelling; below it, it is likely another program's."""


def variable(field: str) -> str:
    """The environment variable of a setting."""
    for unit in _UNITS:
        field = field.removesuffix(unit)
    return PREFIX + field.upper()


class Environment(PydanticBaseSettingsSource):
    """Variables, and files that variables name."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """A setting's text, None where there is none."""
        del field
        text = os.environ.get(variable(field_name))
        file = os.environ.get(variable(field_name) + FILE_SUFFIX)
        if file:
            text = _content(Path(file)).rstrip("\r\n")
        return text or None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """The settings that somebody set."""
        fields = self.settings_cls.model_fields
        texts = {name: self.get_field_value(field, name)[0] for name, field in fields.items()}
        return {name: text for name, text in texts.items() if text is not None}


def _content(file: Path) -> str:
    return file.read_text("utf-8") if file.is_file() else _piped(file)


@cache
def _piped(file: Path) -> str:
    """Return what a pipe brings, as `<(pass kafka)` makes one; it brings that once."""
    return file.read_text("utf-8")


def environment_problems(fields: Iterable[str]) -> Iterator[str]:
    """Yield problems of the variables' names, before their values are read."""
    known = {variable(field): field for field in fields}
    files = {name + FILE_SUFFIX: name for name in known}
    for name in sorted(os.environ):
        if name in files and os.environ[name]:
            yield from _file_problems(name, files[name])
        elif name.startswith(PREFIX) and name not in known and name not in files:
            names = [known_name.removeprefix(PREFIX) for known_name in (*known, *files)]
            near = get_close_matches(name.removeprefix(PREFIX), names, n=1, cutoff=_NEAR)
            if near:
                yield f"{name}: is not known; did you mean {PREFIX}{near[0]}?"


def _file_problems(name: str, plain: str) -> Iterator[str]:
    if os.environ.get(plain):
        yield f"{name}: {plain} is set as well; remove one of the two"
        return
    file = Path(os.environ[name])
    try:
        _content(file)
    except OSError as error:
        yield f"{name}: `{file}` cannot be read ({error.strerror}); check path and permissions"
    except UnicodeDecodeError:
        yield f"{name}: `{file}` is not UTF-8; save it as UTF-8"
