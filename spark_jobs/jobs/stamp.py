"""Note in a checkpoint with which options each micro-batch was begun, and what it reads.

    <checkpoint>/options/00000003    {"batch": the first one that has them, "options": {...}}
    <checkpoint>/topics/00000000     {"topic": its id, ...}
    <checkpoint>/tasks/00000000      {"partitions": ..., "tasks": ...}, see `tasks.py`

A file is written before its first micro-batch begins, and the file with the highest number holds.
So the options of a micro-batch that was begun and not finished are known, whatever the job's file
says now. A topic that was made anew since has another id, and its offsets mean other records.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from headrace.contracts.errors import ReplayDiffers, StateOfOtherOptions, StateUnavailable
from headrace.spark_jobs.folder import Folder
from headrace.spark_jobs.jobs.config import JobConfig, TablesConfig
from headrace.spark_jobs.jobs.filled import FOLDER as FILLED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

    from headrace.spark_jobs.jobs.run import Job

Options = dict[str, Any]
_OPTIONS, _TOPICS = "options", "topics"
_DECIDE_NOTHING = {
    *("servers", "checkpoint", "kafka", "reader", "writer", "spark", "every"),
    *("records-per-batch", "bytes-per-batch", "shuffle-partitions"),
    *("accept-retention", "dead-partitions", "on-failure"),
}
"""Options that change no row of a micro-batch. The checkpoint has the offsets that it reads; and a
job that stopped at a record has written what it would have written without that record."""


class Begun(NamedTuple):
    """A micro-batch that was begun and not finished."""

    query_id: str
    batch: int


class Stamp:
    """Reads and writes the options of a checkpoint's micro-batches."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        """Open the checkpoint; nothing is read yet."""
        self._folder = Folder(spark, checkpoint)

    def begun(self) -> Begun | None:
        """Return the micro-batch that the last driver did not finish, None if it finished all."""
        last = max(_numbers(self._folder.names("offsets")), default=None)
        if last is None or last <= self.finished():
            return None
        return Begun(json.loads(self._folder.read("metadata"))["id"], last)

    def finished(self) -> int:
        """Return the last micro-batch that was finished, -1 if there is none."""
        return max(_numbers(self._folder.names("commits")), default=-1)

    def is_new(self) -> bool:
        """Return whether no micro-batch was ever begun."""
        return not self._folder.names("offsets")

    def options(self) -> Options | None:
        """Return the last options, None if no version of this job has noted any."""
        noted = self.last_note(_OPTIONS)
        return None if noted is None else noted["options"]

    def put(self, options: Options) -> None:
        """Note the options that hold from the next micro-batch on."""
        if self.options() == options:
            return
        begun = self.begun()
        batch = self.finished() + 1 if begun is None else begun.batch
        self.note(_OPTIONS, {"batch": batch, "options": options})

    def know(self, ids: Mapping[str, str]) -> None:
        """Note the ids of the topics; refuse a topic that was made anew since it was read."""
        before = self.last_note(_TOPICS) or {}
        begins_behind = self._folder.names(FILLED) or "whole" in self._folder.names("move")
        if begins_behind or not self.is_new():
            for topic, found in ids.items():
                if before.get(topic, found) != found:
                    message = (
                        f"the topic `{topic}` was made anew since this checkpoint was written, and"
                        " its first records would be passed over; start the job with a new"
                        " checkpoint"
                    )
                    raise StateOfOtherOptions(message)
        if before != {**before, **ids}:
            self.note(_TOPICS, {**before, **ids})

    def last(self) -> int:
        """Return the last micro-batch that was finished; refuse a checkpoint without any."""
        last = self.finished()
        if last < 0:
            message = (
                f"{self._folder.url} is no checkpoint of a job that has finished a micro-batch"
            )
            raise StateUnavailable(message)
        return last

    def hand_topics_to(self, other: Stamp) -> None:
        """Note in another checkpoint which topics this one has read."""
        topics = self.last_note(_TOPICS)
        if topics is not None:
            other.note(_TOPICS, topics)

    def last_note(self, what: str) -> dict[str, Any] | None:
        """Return what the last file of a folder notes, None if there is none."""
        number = max(_numbers(self._folder.names(what)), default=None)
        if number is None:
            return None
        noted: dict[str, Any] = json.loads(self._folder.read(_place(what, number)))
        return noted

    def note(self, what: str, noted: Mapping[str, Any]) -> None:
        """Note something in a further file of a folder."""
        number = max(_numbers(self._folder.names(what)), default=-1) + 1
        self._folder.write(_place(what, number), json.dumps(noted, sort_keys=True))


def options_of(config: JobConfig) -> Options:
    """Return the options of a job that decide which rows it writes, and where."""
    said = config.model_dump(mode="json", by_alias=True)
    if not config.hot_keys:
        # Checkpoints of earlier versions do not note that there are none.
        del said["hot-keys"]
    return {name: value for name, value in said.items() if name not in _DECIDE_NOTHING}


def digest_of(options: Options) -> str:
    """Return the digest of options that a marker holds."""
    text = json.dumps(options, sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def with_options(job: Job, config: JobConfig, options: Options, begun: Begun) -> JobConfig:
    """Return a job with these options, but running where and how its file says now."""
    said = config.model_dump(mode="json", by_alias=True)
    ways = {name: value for name, value in said.items() if name in _DECIDE_NOTHING}
    # As text, its passwords are stars.
    ways["kafka"] = config.kafka
    if issubclass(job.Config, TablesConfig):
        # Checkpoints of earlier versions do not note it, for each update left.
        options = {"updates": "each", **options}
    rows = options["sink"].get("kafka")
    if rows is not None and config.sink.kafka is not None:
        rows = {**rows, "registry": config.sink.kafka.registry}
        options = {**options, "sink": {**options["sink"], "kafka": rows}}
    try:
        return job.Config.model_validate({**options, **ways})
    except ValidationError as error:
        message = (
            f"micro-batch {begun.batch} of `{config.name}` was written in part with options that"
            " this version of the job does not take; start it once with the version that it had,"
            " or have everything written once more with a new name, checkpoint and topic"
        )
        raise ReplayDiffers(message) from error


def changes(before: Options, now: Options) -> str:
    """Name the options that differ."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return ", ".join(f"`{name}`" for name in names)


def _numbers(names: Iterable[str]) -> list[int]:
    return [int(name) for name in names if name.isascii() and name.isdigit()]


def _place(what: str, number: int) -> str:
    return f"{what}/{number:08}"
