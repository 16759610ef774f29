"""Kinds of jobs, by what they can tell beside the four parts that every job has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession


@runtime_checkable
class Prepared(Protocol):
    """A job that checks, before it reads anything, whether it can be computed."""

    def prepare(self, session: SparkSession) -> None:
        """Raise an error if the job cannot be computed."""


@runtime_checkable
class Spreading(Protocol):
    """A job that knows from which tasks the rows of a key come."""

    @property
    def of_one_task(self) -> bool:
        """Whether all rows of a key are of one task."""


@runtime_checkable
class Bundling(Protocol):
    """A job that knows whether its results may leave its tasks in bundles."""

    @property
    def leaves_bundled(self) -> bool:
        """Whether tasks make all of its rows, so that no stage behind them looks at any."""


@runtime_checkable
class Dated(Protocol):
    """A job that knows what the times of its rows say, as a table with a history must."""

    @property
    def in_order(self) -> bool:
        """Whether a later row of a key holds later, although its time is before an earlier one."""


@runtime_checkable
class AtOnce(Protocol):
    """A job whose rows can be computed over topics that are complete, without any state."""

    def rows_at_once(self, frames: Sequence[DataFrame], config: Any) -> DataFrame:
        """Return the rows of frames at rest, one of each input; those of a key are in order.

        All records are readable, and have their fields in `READ`.
        """
