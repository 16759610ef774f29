"""Load names on demand that may need an extra of headrace."""

from importlib import import_module
from typing import Any

from headrace.contracts.errors import ExtraMissing


def load(target: str, *, extra: str, needed_for: str) -> Any:
    """Load the object `module:name`; ExtraMissing names the extra that brings a missing package."""
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        # A missing module of ours is a bug, and no extra brings it.
        if package == "headrace":
            raise
        # pip takes the headrace that is installed, so this works though PyPI has none.
        message = (
            f"{needed_for} needs {package}, which is not installed;"
            f" run: pip install 'headrace[{extra}]'"
        )
        raise ExtraMissing(message) from error
