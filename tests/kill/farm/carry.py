"""Carries out a drawn run, and judges it.

    feed and strike      until the plan is carried out; one copy of state is taken early
    drain, stop          what is left is read and committed, within a bound
    last words           what makes everything leave; drain, stop again
    judge                all topics, state, progress, and that no transaction is open

Behind a repartition the topic between two hops is not read: it is deleted from, and a broker that
was killed forgets what it deleted. The farm judges what must hold of the cleaned topic whatever
stood there, and dead records; `make kill-test` judges the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka.errors import KafkaError

from headrace.contracts.errors import HeadraceError
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.topics import decisions_topic
from tests.kafka.clients import Clients
from tests.kill.chaos import Chaos, Strike
from tests.kill.compare import Difference
from tests.kill.expected import answer_of
from tests.kill.farm.around import Around
from tests.kill.farm.blows import Blows
from tests.kill.farm.decisions import decision_problems
from tests.kill.farm.draw import FAR_BEHIND_MS, Drawn
from tests.kill.farm.lives import (
    LivedAnswer,
    Lives,
    going_on_problems,
    judged_readings,
    late_offsets,
    lived_answers,
    longer_from,
)
from tests.kill.farm.net import Net, ProxiedBrokers
from tests.kill.farm.progress import progress_problems, promises
from tests.kill.feeder import Feeder
from tests.kill.judge import judge
from tests.kill.pipelines import CLEANED, DEAD, LATE, PROGRESS, RAW
from tests.kill.readings import Readings, read_topic
from tests.kill.run import drain, read_states
from tests.kill.spread import id_problems
from tests.kill.stream import POISON_MS, Stream
from tests.kill.world import BROKER, World

_PORTIONS_PER_S = 10
_TRANSACTION_S, _NAP_S, _SESSION_S = 5.0, 6.5, 8.0
"""Longer than in the kill test: on a busy machine three brokers take seconds for a commit."""
_READING_WITHIN_S = 240.0
_SHOWN = 5
Tell = Callable[[str], None]


@dataclass
class Outcome:
    """The results of a run."""

    drawn: Drawn
    worker_kills: int = 0
    broker_strikes: int = 0
    requests: int = 0
    records: int = 0
    """Records that were compared."""
    difference: Difference = field(default_factory=Difference)
    stuck: str | None = None
    """Yield the parts that did not end within their bound."""
    problems: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Strikes that this machine does not allow, and why."""
    struck: dict[str, int] = field(default_factory=dict)
    """Strikes that were done, by kind, those on workers alone left out."""
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """In a word, or a few."""
        if self.stuck is not None:
            return "stuck"
        return "wrong" if self.problems else "right"


def carry_out(folder: Path, drawn: Drawn, tell: Tell) -> Outcome:
    """Carry out a run in an empty folder; must be called from the main thread."""
    began_at = time.monotonic()
    outcome = Outcome(drawn)
    try:
        _carry_out(folder, drawn, outcome, tell)
    # An awaited condition that never came says so by one of these.
    except (TimeoutError, AssertionError, KafkaError, HeadraceError) as problem:
        outcome.stuck = f"{type(problem).__name__}: {problem}"
    outcome.seconds = time.monotonic() - began_at
    return outcome


def _carry_out(folder: Path, drawn: Drawn, outcome: Outcome, tell: Tell) -> None:
    settings = BROKER | ({"min.insync.replicas": "2"} if drawn.brokers > 1 else {})
    brokers = ProxiedBrokers(folder / "kafka", drawn.brokers, settings)
    net = Net(brokers.doors, brokers.behind, drawn.seed)
    more = {
        "HEADRACE_TRANSACTION_TIMEOUT": f"{_TRANSACTION_S:.0f}s",
        "HEADRACE_SESSION_TIMEOUT": f"{_SESSION_S:.0f}s",
        "HEADRACE_DECISIONS": str(drawn.decisions).lower(),
    }
    behind_ms = dict.fromkeys(drawn.behind, FAR_BEHIND_MS)
    stream = Stream(RAW, drawn.partitions, drawn.seed, quiet=drawn.quiet, behind_ms=behind_ms)
    with ExitStack() as stack:
        stack.enter_context(net.run())
        world = World(
            folder, drawn.case, drawn.partitions, drawn.guarantee, broker=brokers, more=more
        )
        world.session_s, world.nap_s = _SESSION_S, _NAP_S
        around = stack.enter_context(Around(world))
        stack.enter_context(world)
        blows = _feed_and_strike(world, (brokers, net, around), (drawn, stream), outcome, tell)
        drain(world)
        tell("drained and stopped; reading state")
        has_one_hop = len(drawn.case.spec.hops()) == 1
        states = read_states(world, blows.cut_short) if has_one_hop else None
        world.start_workers()
        world.clients.produce(RAW, stream.last_words())
        drain(world)
        tell("judging")
        readings = _read(world.clients, drawn.case.spec)
        for worker in world.everybody:
            outcome.problems += worker.unexpected
        outcome.problems += world.disks.problems
        outcome.problems += _judged(drawn, blows.lives, readings, outcome)
        if states is not None:
            outcome.problems += states.problems
            outcome.problems += going_on_problems(blows.lives, states.states, readings)


def _feed_and_strike(
    world: World,
    hit: tuple[ProxiedBrokers, Net, Around],
    what: tuple[Drawn, Stream],
    outcome: Outcome,
    tell: Tell,
) -> Blows:
    (brokers, net, around), (drawn, stream) = hit, what
    rate = drawn.case.records_per_s
    feeder = Feeder(
        brokers.plain_servers,
        RAW,
        stream.portions(rate // _PORTIONS_PER_S),
        rate,
        drawn.codec,
        # A broker that is killed may leave a plain client's transaction open for ever, and then
        # everybody waits for it: that is not the fault of a sidecar.
        transacts=False,
    )
    world.start_workers()
    feeder.start()
    _wait_until_reading(world, drawn)
    blows = Blows(world, brokers, net, around)
    world.stop_workers()
    blows.keep_state()
    world.start_workers()
    chaos = Chaos(world, tell)
    for number, strike in enumerate(drawn.strikes, start=1):
        if isinstance(strike, Strike):
            chaos.run([strike])
        else:
            tell(f"{number}/{len(drawn.strikes)} {strike}")
            blows.strike(strike)
            for worker in world.workers:
                worker.look()
                worker.start()
    feeder.stop()
    outcome.worker_kills = len(chaos.struck.kills_at) + blows.worker_kills
    outcome.broker_strikes, outcome.requests = blows.broker_strikes, blows.requests
    outcome.problems += blows.problems
    blows.count["ended without room"] = around.ended_without_room
    outcome.struck, outcome.left_out = dict(blows.count), around.left_out
    return blows


def _wait_until_reading(world: World, drawn: Drawn) -> None:
    speaking = set(range(drawn.partitions)) - set(drawn.quiet)
    world.wait_until_reading(_READING_WITHIN_S, speaking)


def _read(clients: Clients, spec: PipelineSpec) -> Readings:
    """All topics that clients can read whole; a transaction that hangs in one is raised."""
    between = {hop.end.topic.name for hop in spec.hops() if hop.end is not None}
    changelogs = {hop.changelog.name for hop in spec.hops()}
    beside = decisions_topic(spec.sink.topic).name
    names = {RAW, beside, *(topic.name for topic in spec.topics())} & clients.topics()
    for name in between | changelogs:
        clients.consume_all(name)
    return Readings({name: read_topic(clients, name) for name in sorted(names - between)}, [])


def _judged(drawn: Drawn, lives: Lives, readings: Readings, outcome: Outcome) -> Iterator[str]:
    spec = drawn.case.spec
    exactly_once = drawn.guarantee == "exactly-once"
    if len(spec.hops()) > 1:
        yield from _judged_of_two_hops(drawn, readings, outcome)
        return
    (hop,) = spec.hops()
    lived = lived_answers(lives, readings, drawn.partitions)
    answers = {place: one.answer for place, one in lived.items()}
    judged = judged_readings(readings, hop, lived, spec)
    outcome.difference = judge(spec, judged, answers, exactly_once=exactly_once)
    outcome.records = outcome.difference.records
    yield from outcome.difference.problems
    if outcome.difference.records == 0:
        yield "the run shows nothing: no record was cleaned"
    if exactly_once and promises(spec.operators):
        yield from _broken_promises(drawn, lives, judged, lived)
    if exactly_once and drawn.decisions:
        yield from _wrong_decisions(drawn, readings)


def _wrong_decisions(drawn: Drawn, readings: Readings) -> Iterator[str]:
    operator = str(drawn.case.spec.operators[0].name)
    topic = decisions_topic(CLEANED).name
    for partition in range(drawn.partitions):
        source = readings.records(RAW, partition)
        taken = [one for one in source if one.timestamp_ms < POISON_MS]
        for problem in decision_problems(operator, taken, readings.records(topic, partition)):
            yield f"{topic}/{partition}: {problem}"


def _broken_promises(
    drawn: Drawn,
    lives: Lives,
    readings: Readings,
    answers: Mapping[tuple[str, int], LivedAnswer],
) -> Iterator[str]:
    (hop,) = drawn.case.spec.hops()
    for partition in range(drawn.partitions):
        source = readings.records(RAW, partition)
        taken = [one for one in source if one.timestamp_ms < POISON_MS]
        yield from progress_problems(
            readings.records(PROGRESS, partition),
            readings.records(CLEANED, partition),
            answers[hop.name, partition].answer.cleaned,
            late_offsets(lives, taken),
            longer_from(lives, (RAW, partition)),
        )


def _judged_of_two_hops(drawn: Drawn, readings: Readings, outcome: Outcome) -> Iterator[str]:
    """Every id leaves once, and every record without one."""
    spec = drawn.case.spec
    first = spec.hops()[0]
    answers = [answer_of(first, readings.records(RAW, one)) for one in range(drawn.partitions)]
    leaving = [one for answer in answers for one in answer.cleaned]
    cleaned = [one for part in range(drawn.partitions) for one in readings.records(CLEANED, part)]
    outcome.records = len(cleaned)
    if drawn.guarantee == "exactly-once":
        found = list(id_problems(leaving, cleaned))
        outcome.difference.dirty = len(found)
        yield from found[:_SHOWN]
    dead = sum(len(readings.records(DEAD, part)) for part in range(drawn.partitions))
    must = sum(len(answer.dead) for answer in answers)
    if dead != must and not (drawn.guarantee != "exactly-once" and dead > must):
        yield f"{must} records must be dead, and {dead} are"
    if any(readings.records(LATE, part) for part in range(drawn.partitions)):
        yield "no record can be late here, and some are"
