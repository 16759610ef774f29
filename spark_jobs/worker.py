"""Make the work around a task cheap, which costs more in a small micro-batch than its rows."""

from __future__ import annotations

import gc
import sys
from functools import cache
from zipimport import zipimporter

_JAR = ".jar"


def without_jars(names: list[str]) -> list[str]:
    """Return the entries of a path that are no jars."""
    return [name for name in names if not name.endswith(_JAR)]


def forget_jars() -> None:
    """Take jars from this process's path, where Spark puts its own and the connectors'.

    Python finds nothing in them, but a worker reads all their tables of contents anew before every
    task: three fifths of its time if micro-batches are small.
    """
    sys.path[:] = without_jars(sys.path)
    for name, finder in [*sys.path_importer_cache.items()]:
        # Folders within a jar have finders, too.
        if isinstance(finder, zipimporter) and _JAR in name:
            del sys.path_importer_cache[name]


@cache
def settle() -> None:
    """Make a worker ready for many tasks; a second call does nothing."""
    forget_jars()
    # Behind every task Spark runs the collector, which then skips the objects of libraries.
    gc.collect()
    gc.freeze()
