"""What is loaded when it is asked for, since it may need an extra of headrace."""

from importlib import import_module
from typing import Any

from headrace.contracts.errors import ExtraMissing


def load(target: str, *, extra: str, needed_for: str) -> Any:
    """What `module:name` names; ExtraMissing says which extra brings what is not installed."""
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        # A module of ours that is missing is a mistake of ours, and no extra brings it.
        if package == "headrace":
            raise
        message = (
            f"{needed_for} needs {package}, which is not installed;"
            f" run: pip install 'headrace[{extra}]'"
        )
        raise ExtraMissing(message) from error
