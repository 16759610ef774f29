"""Hot keys as an option of a job: which jobs can spread the records of a key over their tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headrace.spark_jobs.operators.frames import Spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.contracts.problem_text import Path
    from headrace.spark_jobs.jobs.config import JobConfig

_OPTION = "hot-keys"


@runtime_checkable
class LooksUp(Protocol):
    """A job that says by what its stream looks up in a table, None if it does something else."""

    @property
    def LOOKS_UP_BY(self) -> str | None:  # noqa: N802 (as every job calls it)
        """The column by which it looks up."""

    @property
    def FOLDS_ROWS(self) -> bool:  # noqa: N802 (as every job calls it)
        """Whether its rows are folded by window, in tasks of their own."""


def spread_of(config: JobConfig) -> Spread:
    """Return how a job spreads its records over tasks."""
    keys = frozenset(key.encode() for key in config.hot_keys)
    return Spread(tasks=config.tasks, hot_keys=keys)


def hot_keys_problems(job: object, config: JobConfig) -> Iterator[tuple[Path, str]]:
    """Yield why a job cannot spread the records of a key, with the place."""
    if config.hot_keys:
        for problem in _problems(job, config):
            yield (_OPTION,), problem


def _problems(job: object, config: JobConfig) -> Iterator[str]:
    by = job.LOOKS_UP_BY if isinstance(job, LooksUp) else None
    if by is None:
        yield (
            f"`{config.job}` cannot spread the records of a key: only a stream that looks up in a"
            f" table by its key can, as in `orders-prices`; remove `{_OPTION}`"
        )
        return
    if by != "key":
        yield (
            f"the stream looks up by its column `{by}`, and hot keys are keys of its records; write"
            f" the stream by that key to a topic, or remove `{_OPTION}`"
        )
    if getattr(config, "release", None) != "progress":
        yield (
            "each task has a stream time of its own, so a record would wait for other records than"
            f" its key's; release by progress, or remove `{_OPTION}`"
        )
    for option, is_given in _of_one_task(job, config).items():
        if is_given:
            yield (
                f"`{option}` needs all rows of a key in one task, in order; leave it out, or remove"
                f" `{_OPTION}`"
            )


def _of_one_task(job: object, config: JobConfig) -> dict[str, bool]:
    """Return the options that need the rows of a key in order, and whether they are given."""
    mode = config.sink.mode
    folds = isinstance(job, LooksUp) and job.FOLDS_ROWS
    return {
        "corrections": bool(getattr(config, "corrections", False)),
        "cold-history": getattr(config, "cold_history", None) is not None,
        f"mode: {mode}": mode != "append" and not folds,
    }
