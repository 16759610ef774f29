"""Check the settings of a topic that exists already: which are refused, and which give a warning.

Sidecars and Spark jobs apply the same rules to the topics that they write.

A setting is refused if it would lose records, their times or state without anybody having asked for
it. If somebody set it on a topic that others read (cleaned, late, dead), it was asked for, and
gives a warning. A default of the brokers was not asked for, unless the user accepts it: where a
platform deletes everything after a week, and nobody can change that, there is no other way to run.
Internal topics are headrace's alone, so a setting that deletes from them is a mistake. A setting
that loses nothing, but may stop the pipeline or slow it down, gives a warning. The source belongs
to somebody else, so everything about it gives a warning only.

                                    internal    cleaned, late, dead         source
    deletes by age or size          refused     chosen or accepted: warned  warned
                                                default: refused
    keeps the newest of each key    as meant    cleaned: same; or refused   warned
    forgets deletions too soon      refused
    grows uncompacted or unpurged   warned
    replaces timestamps             refused     refused                     warned
    refuses far times, large ones   warned      warned
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.selector_text import RECORD_TIMESTAMP
from headrace.contracts.time import format_duration_ms
from headrace.contracts.topics import FOREVER_MS, TOMBSTONES_KEPT_MS, TopicSpec


class Setting(NamedTuple):
    """The value of one of a topic's settings, and where it comes from."""

    value: str
    chosen: bool
    """True if somebody set it on the topic; otherwise it is the brokers' default."""


Found = Mapping[str, Setting]
"""A topic's settings by name; of the source, none where the brokers do not tell us."""

_INTERNAL = ("changelog", "progress", "repartition")
_WITH_EVENT_TIME = ("cleaned", "late", "dead", "repartition")
_AGE, _SIZE, _POLICY = "retention.ms", "retention.bytes", "cleanup.policy"
_TOMBSTONES = "delete.retention.ms"
_TIMESTAMP_TYPE = "message.timestamp.type"
_AHEAD, _BEHIND = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"
_RECORD_BYTES = "max.message.bytes"
_RECORD_BYTES_MAX = (1 << 31) - 1
"""Brokers are told it as a number of 32 bits."""
_NO_BOUND = -1
_AS_GOOD_AS_FOREVER_MS = 1 << 62
_TIMESTAMP_MS_MAX = (1 << 63) - 1
_ROOM_BYTES = 64 << 10
"""For what is written around a record: the headers of a letter, or the row that holds it."""


class Finding(NamedTuple):
    """One problem of a topic's settings."""

    sentence: str
    refused: bool


def settings_to_make(topic: TopicSpec, source: Found) -> dict[str, str]:
    """Return the settings for creating a topic, with those that brokers' defaults could spoil."""
    spelt_out = {}
    if _RECORD_BYTES in source:
        wanted = int(source[_RECORD_BYTES].value) + _ROOM_BYTES
        spelt_out[_RECORD_BYTES] = str(min(wanted, _RECORD_BYTES_MAX))
    if "delete" in topic.cleanup_policy:
        spelt_out[_SIZE] = str(_NO_BOUND)
    return topic.settings() | spelt_out


def takes_bytes(found: Mapping[str, Found]) -> dict[str, int]:
    """Return how many bytes each topic accepts in one batch."""
    return {name: int(settings[_RECORD_BYTES].value) for name, settings in found.items()}


def findings(
    topic: TopicSpec,
    found: Found,
    source: Found,
    max_future_ms: int | None,
    *,
    accepts_retention: bool = False,
) -> Iterator[Finding]:
    """Yield the problems of a topic of the pipeline that exists already."""
    if topic.role == "decisions":
        return
    yield from _deletions(topic, found, accepts_retention=accepts_retention)
    yield from _compaction(topic, found)
    yield from _tombstones(topic, found)
    if topic.role in _WITH_EVENT_TIME:
        yield from _times(topic, found, max_future_ms)
    if _RECORD_BYTES not in source:
        return
    taken, wanted = int(found[_RECORD_BYTES].value), int(source[_RECORD_BYTES].value)
    if taken < wanted:
        sentence = (
            f"`{topic.name}` takes up to {taken} bytes at once, and the source up to {wanted}: one"
            f" larger record would be dead; raise its {_RECORD_BYTES}"
        )
        yield Finding(sentence, refused=False)


def source_warnings(spec: PipelineSpec, found: Found) -> Iterator[str]:
    """Yield how the source may lose records before the pipeline reads them, or blur their times."""
    if not found:
        return
    name = spec.source.topic
    for setting, bound in _bounds(found):
        yield (
            f"the source `{name}` deletes records {bound}, read or not ({setting}): a pipeline"
            " that stands still for longer misses some"
        )
    if "compact" in _policy(found):
        yield (
            f"the source `{name}` is compacted: of records with the same key, the earlier ones may"
            " be gone before they are read"
        )
    if (
        found[_TIMESTAMP_TYPE].value == "LogAppendTime"
        and spec.source.timestamp == RECORD_TIMESTAMP
    ):
        yield (
            f"the source `{name}` carries the brokers' time ({_TIMESTAMP_TYPE}): records count as"
            " of their arrival; if they tell their own time, name it in `source.timestamp`"
        )


def _deletions(topic: TopicSpec, found: Found, *, accepts_retention: bool) -> Iterator[Finding]:
    for setting, bound in _bounds(found):
        asked_for = found[setting].chosen or accepts_retention
        if topic.role in _INTERNAL:
            advice = (
                f"set its {_POLICY} to compact"
                if topic.cleanup_policy == "compact"
                else f"set its {setting} to {_NO_BOUND}"
            )
            sentence = f"`{topic.name}` deletes records {bound}, and {topic.why}; {advice}"
            yield Finding(sentence, refused=True)
        elif asked_for:
            sentence = f"`{topic.name}` deletes records {bound} ({setting}), whoever has read them"
            yield Finding(sentence, refused=False)
        else:
            sentence = (
                f"`{topic.name}` deletes records {bound}, which is the brokers' default, and"
                f" {topic.why}; set its {setting} to {_NO_BOUND}, or to what is meant, or accept it"
                " (HEADRACE_ACCEPT_RETENTION=true; in a Spark job `accept-retention: true`)"
            )
            yield Finding(sentence, refused=True)


def _compaction(topic: TopicSpec, found: Found) -> Iterator[Finding]:
    compacted = "compact" in _policy(found)
    if "compact" in topic.cleanup_policy and not compacted:
        sentence = (
            f"`{topic.name}` is not compacted: it grows for ever, and reading it takes ever longer;"
            f" set its {_POLICY} to {topic.cleanup_policy}"
        )
        yield Finding(sentence, refused=False)
    if topic.role == "changelog" and "delete" not in _policy(found):
        sentence = (
            f"`{topic.name}` is compacted alone, and brokers let nobody purge such a topic: what is"
            f" over stays in it for ever; set its {_POLICY} to {topic.cleanup_policy}, and its"
            f" {_AGE} and {_SIZE} to {_NO_BOUND}"
        )
        yield Finding(sentence, refused=False)
    if topic.cleanup_policy == "delete" and compacted:
        sentence = (
            f"`{topic.name}` is compacted: of records with the same key only the newest is kept,"
            f" and one without a key stops the pipeline; set its {_POLICY} to delete"
        )
        asked_for = topic.role == "cleaned" and found[_POLICY].chosen
        yield Finding(sentence, refused=not asked_for)


def _tombstones(topic: TopicSpec, found: Found) -> Iterator[Finding]:
    if topic.role != "changelog" or "compact" not in _policy(found):
        return
    kept_ms = int(found[_TOMBSTONES].value)
    if kept_ms < TOMBSTONES_KEPT_MS:
        sentence = (
            f"`{topic.name}` forgets after {format_duration_ms(kept_ms)} what was deleted, and a"
            f" copy of the state that missed it for longer would keep it; set its {_TOMBSTONES} to"
            f" {TOMBSTONES_KEPT_MS}"
        )
        yield Finding(sentence, refused=True)


def _times(topic: TopicSpec, found: Found, max_future_ms: int | None) -> Iterator[Finding]:
    if found[_TIMESTAMP_TYPE].value == "LogAppendTime":
        sentence = (
            f"`{topic.name}` replaces the records' own timestamps by the brokers' time;"
            f" set its {_TIMESTAMP_TYPE} to CreateTime"
        )
        yield Finding(sentence, refused=True)
    # A record too far ahead goes to the dead-letter topic, with its timestamp.
    believed = max_future_ms is None or topic.role == "dead"
    ahead_ms = _TIMESTAMP_MS_MAX if believed else max_future_ms
    for setting, needed_ms, side in ((_AHEAD, ahead_ms, "ahead of"), (_BEHIND, None, "behind")):
        # Brokers before 3.6 have neither setting, and no such bounds.
        if setting not in found:
            continue
        bound_ms = int(found[setting].value)
        if bound_ms < (_TIMESTAMP_MS_MAX if needed_ms is None else needed_ms):
            sentence = (
                f"`{topic.name}` refuses timestamps more than {format_duration_ms(bound_ms)}"
                f" {side} the broker's clock, and such a record would stop the pipeline;"
                f" set its {setting} to {_TIMESTAMP_MS_MAX}"
            )
            yield Finding(sentence, refused=False)


def _bounds(found: Found) -> Iterator[tuple[str, str]]:
    """Yield the settings by which a topic deletes records, each with its bound in words."""
    if "delete" not in _policy(found):
        return
    age_ms, size_bytes = int(found[_AGE].value), int(found[_SIZE].value)
    if age_ms != FOREVER_MS and age_ms < _AS_GOOD_AS_FOREVER_MS:
        yield _AGE, f"older than {format_duration_ms(age_ms)} by their timestamps"
    if size_bytes != _NO_BOUND:
        yield _SIZE, f"beyond {size_bytes} bytes a partition"


def _policy(found: Found) -> list[str]:
    return [word.strip() for word in found[_POLICY].value.split(",")]
