"""Import modules that the user wrote: functions that a pipeline names, and jobs."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from headrace.contracts.problem_text import show
from headrace.contracts.raised import clause_of


def import_own(name: str) -> ModuleType:
    """Import a module that is installed, or that lies in the folder in which headrace was started.

    Raises ImportError with one sentence for any failure, whatever the module itself raised.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        message = f"{show(name)} is not the name of a module"
        raise ImportError(message)
    # The folder ("") goes to the end, so that no file of the user's hides a library.
    if "" not in sys.path:
        sys.path.append("")
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # The user's code runs here. It may raise anything, or end the program as scripts do.
        raise ImportError(_failure(name, error)) from error


def _failure(name: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        if f"{name}.".startswith(f"{error.name}."):
            return (
                f"there is no module `{error.name}`, neither installed nor in the folder"
                " that headrace was started in"
            )
        return f"module `{name}` needs `{error.name}`, which is not installed"
    return f"module `{name}` fails when imported ({clause_of(error)})"
