"""Check that the options of a job fit together: topics, folders, and settings of others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import PurePosixPath

from headrace.contracts.problem_text import Path
from headrace.contracts.topics import dead_topic_name, progress_topic
from headrace.spark_jobs.jobs.access import KafkaAccess
from headrace.spark_jobs.jobs.config import CatalogTable, JobConfig, TableFolder, inputs_of
from headrace.spark_jobs.write.claims import SCD2
from headrace.spark_jobs.write.markers import markers_topic
from headrace.spark_jobs.write.output import OWN_COLUMNS
from headrace.spark_jobs.write.parquet import OF_FOLDERS
from headrace.spark_jobs.write.producer import DECIDED, client_problem
from headrace.spark_jobs.write.scd2 import OF_VERSIONS

_OPTIONS = (
    *("failOnDataLoss", "groupIdPrefix", "minPartitions", "maxRecordsPerPartition"),
    *("minOffsetsPerTrigger", "maxTriggerDelay", "kafkaConsumer.pollTimeoutMs"),
    *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
)
"""Options of Spark's source beside the settings of Kafka's own client."""
_READER_OURS = {
    "subscribe": "inputs",
    "subscribepattern": "inputs",
    "assign": "inputs",
    "kafka.bootstrap.servers": "servers",
    "maxoffsetspertrigger": "records-per-batch",
}
_READER_DECIDED = (
    *("starting", "ending", "includeheaders", "kafka.auto.offset.reset"),
    *("kafka.enable.auto.commit", "kafka.interceptor.classes", "kafka.isolation.level"),
    *("kafka.key.deserializer", "kafka.value.deserializer"),
)
"""How options begin that the job decides, or that Spark's source refuses since it does."""
_WRITER_OURS = {
    "bootstrap.servers": "servers",
    "metadata.broker.list": "servers",
    "transactional.id": "name",
}
_SPARK_OURS = {
    "spark.sql.shuffle.partitions": "shuffle-partitions",
    "spark.app.name": "name",
    "spark.master": "--master",
    "spark.submit.deployMode": "--deploy-mode",
}
_MEMORY = re.compile(r"spark\.[A-Za-z.]*(memory|memoryOverhead)")
_SIZE = re.compile(r"[0-9]{1,9}[kmgtKMGT]?[bB]?")
_TRUTH = ("true", "false")


def problems(config: JobConfig) -> Iterator[tuple[Path, str]]:
    """Yield each problem with its place."""
    yield from _topic_problems(config)
    yield from _folder_problems(config)
    said = config.kafka or KafkaAccess()
    if config.kafka is not None:
        yield from _said_twice("reader", config.reader, said.for_reader())
        yield from _said_twice("writer", config.writer, said.for_writer())
    yield from _reader_problems(config.reader)
    yield from _writer_problems(config.writer, said.for_writer())
    yield from _spark_problems(config.spark)


def own_column_among(fields: Iterable[str], config: JobConfig) -> str | None:
    """Describe the first field of a job's rows whose name is that of a table's own column."""
    own = OWN_COLUMNS | OF_VERSIONS if config.sink.mode == SCD2 else OWN_COLUMNS
    if config.sink.parquet is not None:
        own = own | OF_FOLDERS
    taken = sorted(own & {name.lower() for name in fields})
    if config.sink.kafka is not None or not taken:
        return None
    return (
        f"`{config.job}` has rows with a field `{taken[0]}`, and a table has a column of that"
        " name which says more of each row; give the field another name, or write to Kafka"
    )


def _topic_problems(config: JobConfig) -> Iterator[tuple[Path, str]]:
    """Refuse a job that reads what it writes, since it never ends, and topics with two purposes."""
    owners: dict[str, str] = {}
    for name, one in inputs_of(config).items():
        path: Path = ("inputs", name, "topic")
        if one.topic in owners:
            yield path, _owned(one.topic, owners[one.topic])
        owners.setdefault(one.topic, f"the input `{name}`")
    read = dict(owners)
    for name, one in inputs_of(config).items():
        owners.setdefault(progress_topic(one.topic).name, f"the progress of the input `{name}`")
        dead = dead_topic_name(one.topic)
        if dead in read:
            sentence = f"its dead records would go to `{dead}`, which is {owners[dead]} already"
            yield ("inputs", name, "topic"), f"{sentence}; read another topic"
        owners.setdefault(dead, f"for the dead records of the input `{name}`")
    owners.setdefault(markers_topic(config.name), "for this job's own markers")
    written = (("sink", "kafka", "topic"), config.sink.kafka), (("late", "topic"), config.late)
    for path, topic in written:
        if topic is not None:
            if topic.topic in owners:
                yield path, _owned(topic.topic, owners[topic.topic])
            owners.setdefault(topic.topic, "for this job's results")


def _owned(topic: str, owner: str) -> str:
    return f"`{topic}` is {owner} already; name another topic"


def _folder_problems(config: JobConfig) -> Iterator[tuple[Path, str]]:
    tables: list[tuple[Path, TableFolder | CatalogTable | None]] = [
        (("sink", "delta", "folder"), config.sink.delta),
        (("sink", "iceberg", "folder"), config.sink.iceberg),
        (("sink", "parquet", "folder"), config.sink.parquet),
        (("cold-history", "folder"), getattr(config, "cold_history", None)),
    ]
    owners = {_bare(config.checkpoint): "the checkpoint"}
    for path, table in tables:
        if table is not None and table.folder is not None:
            bare = _bare(table.folder)
            if bare in owners:
                yield path, f"`{table.folder}` is the folder of {owners[bare]}; name another one"
            elif _is_among_files(config.checkpoint, table.folder):
                sentence = (
                    f"`{config.checkpoint}` is below `{table.folder}`, and the upkeep or the"
                    " readers of a table take all files there for its own; name a folder elsewhere,"
                    " or one whose name begins with `_`"
                )
                yield ("checkpoint",), sentence
            owners.setdefault(bare, "the results")


def _bare(folder: str) -> PurePosixPath:
    """Return a folder's path, of a URL of this machine's disk as of a path alone."""
    return PurePosixPath(re.sub("^file:(//)?(?=/)", "", folder))


def _is_among_files(folder: str, table: str) -> bool:
    """Return whether a `VACUUM` of Delta's or of orphans of Iceberg's would remove a folder.

    They pass over names that begin with `_` or `.`, as readers of Parquet do.
    """
    inner, around = _bare(folder), _bare(table)
    if not inner.is_relative_to(around):
        return False
    return not any(name.startswith(("_", ".")) for name in inner.relative_to(around).parts)


def _reader_problems(reader: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    known = {option.lower(): option for option in _OPTIONS}
    for name, value in reader.items():
        ours = _READER_OURS.get(name.lower())
        if ours is not None:
            yield ("reader", name), _said_elsewhere(name, ours)
        elif name.lower().startswith(_READER_DECIDED):
            yield ("reader", name), f"`{name}` is what the job decides; remove it"
        elif name.lower() == "failondataloss" and value.lower() not in _TRUTH:
            yield ("reader", name), f"`{value}` is none of the choices; write `true` or `false`"
        elif name.lower() not in known and not name.lower().startswith("kafka."):
            near = get_close_matches(name.lower(), known, n=1)
            guess = f"did you mean `{known[near[0]]}`?" if near else "Kafka's begin with `kafka.`"
            yield ("reader", name), f"`{name}` is not an option of Spark's source; {guess}"


def _said_twice(
    option: str, given: Mapping[str, str], said: Mapping[str, str]
) -> Iterator[tuple[Path, str]]:
    for name in given:
        if name in said:
            yield (option, name), _said_elsewhere(name, "kafka")


def _writer_problems(
    writer: Mapping[str, str], said: Mapping[str, str]
) -> Iterator[tuple[Path, str]]:
    theirs = {name: value for name, value in writer.items() if name not in _WRITER_OURS}
    for name in writer.keys() - theirs.keys():
        yield ("writer", name), _said_elsewhere(name, _WRITER_OURS[name])
    for name in writer.keys() & DECIDED:
        yield ("writer", name), f"`{name}` is what the job decides; remove it"
    problem = client_problem({**said, **theirs}) if theirs else None
    if problem is not None:
        named = [name for name in theirs if name in problem]
        yield ("writer", *named[:1]), f"librdkafka does not take this: {problem}"


def _spark_problems(spark: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    for name, value in spark.items():
        ours = _SPARK_OURS.get(name)
        if ours is not None:
            yield ("spark", name), _said_elsewhere(name, ours)
        elif not name.startswith("spark."):
            yield ("spark", name), f"`{name}` is no setting of Spark, for those begin with `spark.`"
        elif _MEMORY.fullmatch(name) and not _SIZE.fullmatch(value):
            yield ("spark", name), f"`{value}` is not a size; write a number and a unit, such as 2g"


def _said_elsewhere(name: str, option: str) -> str:
    return f"`{name}` is what `{option}` says; write it there"
