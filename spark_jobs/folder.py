"""A folder on any file system that Spark knows, through Hadoop's client."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.contracts.errors import StateUnavailable
from headrace.spark_jobs.seams import java_of, java_session_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

UNFINISHED = ".unfinished"
"""Ends the name of a file that is being written."""
_IN_PATTERNS = re.compile(r"[\\\[\]{}*?]")
"""The characters by which Hadoop takes a path for a pattern of many."""
_MISSING = "java.io.FileNotFoundException"
"""The exception of some file systems, where others answer that a file was not there."""


def literal(path: str) -> str:
    """Return a path as Spark's readers of files take it, which look for patterns in it."""
    return _IN_PATTERNS.sub(r"\\\g<0>", path)


class Folder:
    """Small files in a folder, which need not exist."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """Take the path as a URL, or as one of the file system that Spark was set up for."""
        self._jvm = java_of(spark)
        self._given = path
        settings = java_session_of(spark).sessionState().newHadoopConf()
        with self._asked():
            self._root = self._jvm.org.apache.hadoop.fs.Path(path)
            self._files = self._root.getFileSystem(settings)

    @property
    def is_on_this_machine(self) -> bool:
        """Whether it is on a disk of the machine that runs this process."""
        return bool(self._files.getScheme() == "file")

    @property
    def path_on_disk(self) -> str | None:
        """Its path on a disk of each machine, None on another file system."""
        if not self.is_on_this_machine:
            return None
        return str(self._files.makeQualified(self._root).toUri().getPath())

    @property
    def url(self) -> str:
        """Its URL, whether or not the path was one."""
        return str(self._files.makeQualified(self._root))

    @property
    def parent_and_name(self) -> tuple[str, str]:
        """The URL of the folder around it, and its own name there."""
        path = self._files.makeQualified(self._root)
        return str(path.getParent()), str(path.getName())

    def names(self, place: str) -> list[str]:
        """List the names in a folder below, none if the folder is missing."""
        path = self._path(place) if place else self._root
        with self._asked():
            if not self._files.exists(path):
                return []
            return [str(each.getPath().getName()) for each in self._files.listStatus(path)]

    def read(self, place: str) -> str:
        """Return the text of a file."""
        with self._asked():
            with_bytes = self._files.open(self._path(place))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(with_bytes, "UTF-8"))
            finally:
                with_bytes.close()

    def write(self, place: str, text: str) -> None:
        """Write a new file, which appears whole or not at all."""
        unfinished = self._path(f"{place}{UNFINISHED}")
        with self._asked():
            out = self._files.create(unfinished, True)  # noqa: FBT003 (Java's, whatever stood there)
            try:
                out.write(text.encode())
            finally:
                out.close()
            is_renamed = self._files.rename(unfinished, self._path(place))
        if not is_renamed:
            message = f"{unfinished} cannot be renamed to {place}"
            raise OSError(message)

    def rename(self, place: str, to: str) -> bool:
        """Give a file another name; return whether it was there."""
        with self._asked():
            try:
                return bool(self._files.rename(self._path(place), self._path(to)))
            except Py4JJavaError as failure:
                if failure.java_exception.getClass().getName() != _MISSING:
                    raise
                return False

    def remove(self, place: str) -> None:
        """Remove a file, if it is there."""
        with self._asked():
            self._files.delete(self._path(place), False)  # noqa: FBT003 (Java's: no folders)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Raise one sentence if the file system refuses what it is asked, or does not answer."""
        try:
            yield
        except (Py4JJavaError, PySparkException) as failure:
            text: Any = failure
            if isinstance(failure, Py4JJavaError):
                text = failure.java_exception.getMessage()
            said = str(text).strip().partition("\n")[0]
            message = (
                f"the folder `{self._given}` cannot be used: {said}; see that its name is right,"
                " that Spark has the library of its file system, and that this user may write there"
            )
            raise StateUnavailable(message) from failure

    def _path(self, place: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, place)
