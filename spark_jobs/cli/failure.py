"""Turn the failure of a query into an error of ours, where one sentence can explain it.

An exception in a worker, in Spark's Kafka client or in a sink comes back as text inside of Spark's
own error; the text has its type and its message. Any other failure is a bug, and keeps its
traceback.
"""

from __future__ import annotations

import re

from headrace.contracts import errors
from headrace.contracts.errors import (
    HeadraceError,
    InstanceFenced,
    JobFailed,
    JobInvalid,
    KafkaRefused,
    KafkaUnreachable,
    SettingsInvalid,
    StateOfOtherOptions,
    StateUnavailable,
    TopicRefused,
)
from headrace.spark_jobs.operators.failures import is_theirs
from headrace.spark_jobs.queries.plain_terms import unanswered

_OURS = re.compile(r"contracts\.errors\.(\w+): (.+)")
_LOST = re.compile(r"failOnDataLoss to false\.\s+Reason: (.+)")
_GONE = re.compile(r"Partitions Set\((.+?)\) have been deleted")
_KAFKAS = re.compile(r"org\.apache\.kafka\.common\.(?:errors|config)\.(\w+)Exception: (.+)")
_OVERFLOW = re.compile(
    r"ArithmeticException: long overflow\s.*?KafkaRecordToRowConverter", re.DOTALL
)
_PYTHONS = re.compile(
    r"Python in worker has different version: \(?'?([\d.]+)'?\)? than that in driver: \(?'?([\d.]+)"
)
_NO_ANSWER = re.compile(r"\[[A-Z_.]+\] ([^\n]+?)(?: If necessary set [^\n]+?)? SQLSTATE: 22\w+")
_OTHER_STEPS = "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
_OTHER_SOURCES = re.compile(
    r"There are \[(\d+)\] sources in the checkpoint offsets and now there are \[(\d+)\] sources"
)
_TWO_DRIVERS = re.compile(
    r"\[(?:CONCURRENT_STREAM_LOG_UPDATE|DELTA_CONCURRENT_TRANSACTION)\]"
    r"|Multiple streaming queries are concurrently using"
)
_FILES = re.compile(
    r"(?:AccessControl|AccessDenied|ParentNotDirectory|UnsupportedFileSystem)"
    r"Exception: (.+)"
    r"|IOException: (.*(?:No space left on device|Mkdirs failed|Permission denied|Disk quota).*)"
    r"|ClassNotFoundException: (Class org\.apache\.hadoop\.fs\..+ not found)"
)
_SILENT = {"Timeout", "Disconnect", "Network"}
_FRAME = re.compile(r'^ +File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>\S+)$', re.MULTILINE)
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:: .*)?$", re.MULTILINE)


def error_of(failure: BaseException, servers: str) -> HeadraceError | None:
    """Return the error of ours that explains a failure, None for a bug."""
    text = str(failure)
    return (
        _ours(text)
        or _lost(text)
        or _other_steps(text)
        or _other_sources(text)
        or _other_driver(text)
        or _too_far_ahead(text)
        or _kafkas(text, servers)
        or _other_python(text)
        or _not_computed(text)
        or _raised_by_the_job(text)
        or _files(text)
    )


def _ours(text: str) -> HeadraceError | None:
    found = _OURS.findall(text)
    if not found:
        return None
    name, sentence = found[-1]
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, HeadraceError)):
        return None
    return kind(sentence.strip())


def _lost(text: str) -> HeadraceError | None:
    found = _LOST.search(text)
    if found is None:
        return None
    gone = _GONE.search(found[1])
    if gone is not None:
        return TopicRefused(
            f"the checkpoint of this job has read {gone[1]}, and no input has that any more: its"
            " topic was made anew, or the job names another one; run the job as it was, or start it"
            " with a new checkpoint"
        )
    return TopicRefused(
        f"records are gone that this job had not read: {found[1].strip()}; have the topic keep them"
        ' for longer, and to go on without them say `reader: {failOnDataLoss: "false"}`'
    )


def _other_steps(text: str) -> HeadraceError | None:
    """Recognise a checkpoint of a query with fewer or more steps that keep state."""
    if _OTHER_STEPS not in text:
        return None
    return StateOfOtherOptions(
        "this checkpoint has the state of other steps than the job has now: a `group_by`, a window"
        " or a `join_on` came or went; run the job as it was, or start it with a new checkpoint"
    )


def _other_sources(text: str) -> HeadraceError | None:
    """Recognise a checkpoint of a query that read fewer or more topics."""
    found = _OTHER_SOURCES.search(text)
    if found is None:
        return None
    return StateOfOtherOptions(
        f"this checkpoint was written by a job with {found[1]} sources, and this one has"
        f" {found[2]}: each input is one, and all progress topics together are one more, which is"
        " there once an input has a `pipeline`; run the job as it was, or start it with a new"
        " checkpoint"
    )


def _other_driver(text: str) -> HeadraceError | None:
    """Recognise two drivers with one checkpoint."""
    if not _TWO_DRIVERS.search(text):
        return None
    return InstanceFenced(
        "another driver runs this query on the same checkpoint, or did until now; leave one of"
        " them running, and start that one again if it has ended, too"
    )


def _too_far_ahead(text: str) -> HeadraceError | None:
    """Recognise a record whose time Spark cannot count in microseconds; no job can set it aside."""
    if not _OVERFLOW.search(text):
        return None
    return TopicRefused(
        "a topic of this job has a record from after the year 294246, a time that Spark's Kafka"
        " source cannot read; `kafka-get-offsets.sh --time max-timestamp` says where. Give the"
        " pipeline that writes the topic a `max-future`, and have the topic written anew"
    )


def _kafkas(text: str, servers: str) -> HeadraceError | None:
    found = _KAFKAS.findall(text)
    if not found:
        return None
    name, said = found[-1]
    if name in _SILENT:
        return KafkaUnreachable(f"no broker answers at {servers}: {said}")
    if "Authentication" in name or "Authorization" in name:
        return KafkaRefused(f"the brokers at {servers} refuse this job: {said}")
    if name == "Config":
        return JobInvalid(
            f"Spark's Kafka client cannot be set up: {said}; see `servers`, `kafka`, `reader`"
        )
    return None


def _other_python(text: str) -> HeadraceError | None:
    """Recognise workers that run another Python than the driver."""
    found = _PYTHONS.search(text)
    if found is None:
        return None
    return SettingsInvalid(
        f"the executors run Python {found[1]} and this driver runs {found[2]}; give both the same"
        " one, by `PYSPARK_PYTHON` or `spark: {spark.pyspark.python: ...}`"
    )


def _not_computed(text: str) -> HeadraceError | None:
    """Recognise an expression of the user's that has no answer for a row."""
    found = _NO_ANSWER.search(text)
    if found is None:
        return None
    return unanswered(found[1].strip())


def _raised_by_the_job(text: str) -> HeadraceError | None:
    """Recognise an exception from a function of the user's; name the innermost one."""
    theirs = [frame for frame in _FRAME.finditer(text) if is_theirs(frame["file"])]
    raised = _RAISED.search(text, theirs[-1].end()) if theirs else None
    if raised is None:
        return None
    file, line, name = theirs[-1].group("file", "line", "name")
    return JobFailed(f"`{name}` of this job raised {raised[0]} ({file}, line {line})")


def _files(text: str) -> HeadraceError | None:
    """Recognise a file system that refuses what it is asked."""
    found = _FILES.search(text)
    if found is None:
        return None
    said = next(filter(None, found.groups())).strip()
    return StateUnavailable(
        f"a folder of this job cannot be used: {said}; see that the names of its checkpoint and its"
        " sink are right, that there is room, and that this user may write there"
    )
