"""Each dead letter goes back once, in the first replay that takes it, wherever replays end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from aiokafka.structs import OffsetAndMetadata
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.dead_letter import REPLAYS_HEADER, DeadLetter, dead_headers
from headrace.contracts.decision import Reason
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Record
from headrace.services.admin.replay_dead import Choice, Judge
from headrace.services.admin.replay_place import Place
from headrace.services.kafka.cluster import Ends

SPEC = PipelineSpec.model_validate(
    {
        "pipeline": "clicks",
        "source": {"topic": "clicks.raw"},
        "operators": [{"reorder": {"grace": "30s"}}],
        "sink": {"topic": "clicks.cleaned"},
    }
)
REASONS = (Reason.UNDECODABLE, Reason.FAILED)


class Run(NamedTuple):
    """One replay, and after how many parts it is killed."""

    choice: Choice
    letters_a_part: int
    parts: int


BILLION = 1_000_000_000
REPLAYS = st.integers(0, 3) | st.integers(BILLION - 1, BILLION)

LETTERS = st.lists(st.tuples(st.sampled_from(REASONS), REPLAYS), max_size=8)
RUNS = st.lists(
    st.builds(
        Run,
        st.builds(Choice, st.sampled_from([None, *REASONS]), REPLAYS.map(lambda count: count + 1)),
        st.integers(1, 4),
        st.integers(1, 8),
    ),
    max_size=6,
)


def _dead(offset: int, reason: Reason, replays: int, topic: str = "clicks.raw") -> Record:
    headers = ((REPLAYS_HEADER, b"%d" % replays),) if replays else ()
    record = Record(b"%d" % offset, b"{", 1, headers, topic, 0, offset)
    letter = DeadLetter(record, "intake", reason, "why")
    return record._replace(headers=dead_headers(letter), topic=SPEC.dead.topic, offset=offset)


def _replayed(
    dead: list[Record], committed: OffsetAndMetadata | None, run: Run, topics: Iterable[str]
) -> Iterator[tuple[set[int], set[int], Place]]:
    """Replay as far as a run goes; yield each part, those of it that go back, and the place."""
    choice, size, parts = run
    place = Place.read(committed, Ends(0, len(dead)))
    judge = Judge(SPEC, choice, dict.fromkeys(topics, 1))
    first = place.start
    for start in range(first, min(first + size * parts, len(dead)), size):
        part = dead[start : start + size]
        back = judge.divide(part, place, Counter())
        place.advance(start + len(part), *choice, judge.partitions)
        offsets = set(range(start, start + len(part)))
        yield offsets, {int(one.key or b"") for records in back.values() for one in records}, place


@given(LETTERS, RUNS)
def test_each_letter_goes_back_in_the_first_replay_that_takes_it(
    letters: list[tuple[Reason, int]], runs: list[Run]
) -> None:
    dead = [_dead(offset, *letter) for offset, letter in enumerate(letters)]
    left = set(range(len(dead)))
    committed = None
    for run in runs:
        choice = run[0]
        for offsets, back, place in _replayed(dead, committed, run, ["clicks.raw"]):
            due = {
                offset
                for offset in left & offsets
                if choice.reason in {None, letters[offset][0]}
                and letters[offset][1] < choice.replays_max
            }
            assert back == due
            left -= due
            committed = place.written()
            # No letter that is left lies where no later replay reads.
            assert all(offset >= place.start for offset in left)


TOPICS = ("clicks.raw", "clicks.other")
FROM_TOPICS = st.lists(
    st.tuples(st.sampled_from(REASONS), st.integers(0, 1), st.sampled_from(TOPICS)), max_size=8
)


@given(
    FROM_TOPICS,
    st.lists(
        st.tuples(RUNS.map(lambda runs: runs[:1]), st.sets(st.sampled_from(TOPICS), min_size=1)),
        max_size=6,
    ),
)
def test_a_letter_from_a_topic_that_is_not_read_waits_until_it_is(
    letters: list[tuple[Reason, int, str]], replays: list[tuple[list[Run], set[str]]]
) -> None:
    dead = [_dead(offset, *letter) for offset, letter in enumerate(letters)]
    left = set(range(len(dead)))
    committed = None
    for runs, topics in replays:
        for run in runs:
            choice = run[0]
            for offsets, back, place in _replayed(dead, committed, run, sorted(topics)):
                due = {
                    offset
                    for offset in left & offsets
                    if choice.reason in {None, letters[offset][0]}
                    and letters[offset][1] < choice.replays_max
                    and letters[offset][2] in topics
                }
                assert back == due
                left -= due
                committed = place.written()
                # No letter that is left lies where no later replay reads.
                assert all(offset >= place.start for offset in left)
