"""The commands: our own in the table below, others by entry point.

A command is a function whose docstring and type hints are its help. It is loaded when it is asked
for, so that `headrace plan` starts without Faust, and works where Faust is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Annotated, Any

from cyclopts import App, Parameter

from headrace.contracts.errors import YourFault

GROUP = "headrace.commands"
OWN_COMMANDS = {
    "broker": "headrace.services.cli.broker:broker",
    "demo": "headrace.services.cli.demo:demo",
    "group": "headrace.services.cli.group:group",
    "inspect": "headrace.services.cli.inspect:inspect",
    "plan": "headrace.services.cli.plan:plan",
    "replay-dead": "headrace.services.cli.replay_dead:replay_dead",
    "reset": "headrace.services.cli.reset:reset",
    "run": "headrace.services.cli.run:run",
    "test": "headrace.services.cli.scenarios:run_scenarios",
}
_EXTRAS = {"headrace.services": "sidecar", "headrace.spark_jobs": "spark"}


def make_app(words: Sequence[str]) -> App:
    """The application for these arguments, with the commands that they may need."""
    app = App(
        name="headrace",
        help="Clean Kafka topics for Spark: deduplicate, reorder and suppress.",
        version=_version(),
    )
    commands = find_commands()
    for name in _needed(words, commands):
        app.command(load_command(commands[name]), name=name)
    return app


def _needed(words: Sequence[str], commands: Collection[str]) -> Sequence[str]:
    """Return the command that is called; all for the help, which shows what each does."""
    first = words[0] if words else ""
    if first in commands:
        return [first]
    return [] if first == "--version" else sorted(commands)


def find_commands() -> dict[str, EntryPoint]:
    """Every command by name."""
    own = {name: EntryPoint(name, value, GROUP) for name, value in OWN_COMMANDS.items()}
    return own | {command.name: command for command in entry_points(group=GROUP)}


def load_command(command: EntryPoint) -> Callable[..., Any]:
    """A command's function; where its libraries are missing, one that says what to install."""
    try:
        function: Callable[..., Any] = command.load()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        # A module of ours that is missing is a mistake of ours, and no extra brings it.
        if package == "headrace":
            raise
        return _unavailable(command, package)
    return function


def _unavailable(command: EntryPoint, package: str) -> Callable[..., None]:
    extra = _EXTRAS.get(".".join(command.module.split(".")[:2]))
    requirement = package if extra is None else f"'headrace[{extra}]'"
    sentence = (
        f"`headrace {command.name}` needs {package}, which is not installed;"
        f" run: pip install {requirement}"
    )

    def unavailable(
        *_words: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    ) -> None:
        raise YourFault(sentence)

    unavailable.__doc__ = f"(not installed: pip install {requirement})"
    return unavailable


def _version() -> str:
    try:
        return version("headrace")
    except PackageNotFoundError:
        return "not installed"
