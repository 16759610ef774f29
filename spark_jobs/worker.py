"""What Python does around a task, made cheap: more of a small micro-batch than its rows cost."""

from __future__ import annotations

import gc
import sys
from functools import cache
from zipimport import zipimporter

_JAR = ".jar"


def without_jars(names: list[str]) -> list[str]:
    """Those of a path that are no jars."""
    return [name for name in names if not name.endswith(_JAR)]


def forget_jars() -> None:
    """Take jars from this process's path, where Spark puts its own and the connectors'.

    There is nothing in them for Python, and before every task a worker reads all their tables of
    contents anew: three fifths of its time, where micro-batches are small.
    """
    sys.path[:] = without_jars(sys.path)
    for name, finder in [*sys.path_importer_cache.items()]:
        # Of folders within a jar, too.
        if isinstance(finder, zipimporter) and _JAR in name:
            del sys.path_importer_cache[name]


@cache
def settle() -> None:
    """Make a worker ready for many tasks; the second time there is nothing to do."""
    forget_jars()
    # Behind every task Spark has all objects looked through, those of libraries first of all.
    gc.collect()
    gc.freeze()
