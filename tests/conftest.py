"""How every test runs: hypothesis' profiles, two tiers (`tiers.py`) and the course of a run.

`ci` finds the same examples on every run, so that a red run is red again; `thorough` looks further,
and is asked for with `--hypothesis-profile thorough` (`make thorough`).
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator, Iterator
from tempfile import gettempdir

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from headrace.services.observe import logs

pytest_plugins = [
    "tests.kafka.fixtures",
    "tests.spark.fixtures",
    "tests.course",
    "tests.spread",
    "tests.tiers",
]

settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=20,
    deadline=None,
    print_blob=True,
    # It goes by the clock, and a machine may stand still.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough",
    max_examples=2_000,
    deadline=None,
    print_blob=True,
    # Long streams of records are the point here, however slowly they are made.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("ci")
_OF_TERMINALS = ("COLUMNS", "LINES", "FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "TTY_COMPATIBLE")
"""Variables that fold and colour what a command says."""
_NO_PROXY = "127.0.0.1,localhost,::1"
_TMPDIR_BYTES_MAX = 71
"""A socket's name has 104 bytes or more, and Python adds a folder and a file to this one."""
_OBJECTS_MAX = 20_000
"""Python searches for garbage whenever so many more objects are alive; 700 by itself."""


def pytest_configure(config: pytest.Config) -> None:
    """Draw no number from the modules that a process has loaded: each process has others.

    Commands are compared with what they say, whatever the terminal of who runs the tests is like.
    No proxy of this machine is asked for servers that listen on loopback.
    """
    folder = gettempdir()
    if len(os.fsencode(folder)) > _TMPDIR_BYTES_MAX:
        message = (
            f"TMPDIR is `{folder}`, whose name is too long for sockets of forked processes;"
            f" name a folder with {_TMPDIR_BYTES_MAX} bytes at most, such as /tmp"
        )
        raise pytest.UsageError(message)
    for name in _OF_TERMINALS:
        os.environ.pop(name, None)
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), _NO_PROXY)))
    if config.getoption("--hypothesis-profile") is None:
        nothing = providers._local_constants  # noqa: SLF001 (hypothesis has no setting for it)
        providers._get_local_constants = lambda: nothing  # noqa: SLF001


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the tests themselves out of Python's search for garbage, which else looks at them all.

    Each test of Spark asks for a search. It took 0.2 s of CPU time among all tests, and takes 5 ms.
    Python itself searches less often: its searches took 8 CPU seconds of a run.
    """
    gc.disable()
    collected = yield
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_MAX)
    gc.enable()
    return collected


@pytest.fixture(autouse=True)
def _the_command_logs_no_longer_than_its_test() -> Iterator[None]:
    """Close the handler of a command that ran in this process.

    A timer of it tells of repeated lines ten seconds later, and would tell them to another test.
    """
    yield
    for handler in logging.root.handlers[:]:
        if type(handler).__module__ == logs.__name__:
            logging.root.removeHandler(handler)
            handler.close()
