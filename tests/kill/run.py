"""One run: a world, a stream, a plan of strikes, and a judgement.

    feed and strike      both until the plan is carried out
    drain, stop          what the state is now is read: from the changelog, and from disk
    last words           more of the stream, and what makes everything leave; drain, stop again
    judge                every topic, the rows, and what the states read above go on to

The state is read before the last words, while windows are open and ids are remembered.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.kill import state
from tests.kill.chaos import Chaos, Struck
from tests.kill.disk import folder_of
from tests.kill.feeder import Feeder
from tests.kill.judge import Answers, answers_of, judge
from tests.kill.pipelines import CASES, RAW
from tests.kill.readings import Readings, read_everything, read_topic
from tests.kill.report import Options, Report
from tests.kill.segments import Transactions, transactions
from tests.kill.stream import Stream
from tests.kill.world import World

PARTITIONS = 4
_PORTIONS_PER_S = 20
_READING_WITHIN_S = 240.0
_DRAINED_WITHIN_S = 300.0
_AFTER_THE_LAST_S = 1.0
_SHOWN = 5
Tell = Callable[[str], None]


class States(NamedTuple):
    """The state of every partition, and what is wrong with its rows."""

    states: list[state.PartitionStates]
    problems: list[str]
    rows: int


def run(folder: Path, options: Options, tell: Tell) -> Report:
    """Carry out a run in an empty folder; must be called from the main thread."""
    began_at = time.monotonic()
    case = CASES[options.pipeline]
    stream = Stream(RAW, PARTITIONS, options.seed)
    with World(folder, case, PARTITIONS, options.guarantee) as world:
        struck = _feed_and_strike(world, stream, options, tell)
        drain(world)
        tell("drained and stopped; reading state")
        states = read_states(world)
        tell("last words")
        world.start_workers()
        world.clients.produce(RAW, stream.last_words())
        drain(world)
        readings = read_everything(world.clients, case.spec, world.data)
        aborts = _aborts(world)
        tell("judging")
        report = _judged(world, options, states, readings)
    report.struck, report.aborts = struck, aborts
    report.problems += report.emptiness()
    report.seconds = time.monotonic() - began_at
    return report


def _feed_and_strike(world: World, stream: Stream, options: Options, tell: Tell) -> Struck:
    records_per_s = world.case.records_per_s
    portions = stream.portions(records_per_s // _PORTIONS_PER_S)
    feeder = Feeder(world.broker.bootstrap_servers, RAW, portions, records_per_s)
    world.start_workers()
    feeder.start()
    world.wait_until_reading(_READING_WITHIN_S)
    chaos = Chaos(world, tell)
    chaos.run(options.strikes)
    time.sleep(_AFTER_THE_LAST_S)
    feeder.stop()
    tell(f"fed {feeder.sent} records, {feeder.aborted} of them in aborted transactions")
    return chaos.struck


def drain(world: World) -> None:
    """Until all that there is was read and committed; then nobody runs."""
    world.wait_until_drained(_DRAINED_WITHIN_S)
    world.stop_workers()


def _judged(world: World, options: Options, states: States, readings: Readings) -> Report:
    spec = world.case.spec
    answers = answers_of(spec, readings, world.partitions)
    difference = judge(spec, readings, answers, exactly_once=options.exactly_once)
    source = readings.topics[RAW]
    outputs = [topic for name, topic in readings.topics.items() if name != RAW]
    return Report(
        options,
        Struck(),
        world.broker_kills,
        difference,
        Transactions(),
        source=source.count,
        source_aborted=source.uncommitted - source.count,
        aborted_copies=sum(topic.uncommitted - topic.count for topic in outputs),
        rows=states.rows,
        disks=world.disks.looked,
        said=sum((worker.said() for worker in world.everybody), Counter()),
        gave_up=[line for worker in world.everybody for line in worker.gave_up],
        problems=[
            *(line for worker in world.everybody for line in worker.unexpected),
            *difference.problems,
            *world.disks.problems,
            *states.problems,
            *going_on(world, states, readings, answers),
        ],
    )


def read_states(world: World, cut_short: Collection[Path] = ()) -> States:
    """The state of every partition, from the changelog and from disk, and how their rows differ."""
    spec = world.case.spec
    states = States([], [], 0)
    for hop in spec.hops():
        changelog = read_topic(world.clients, hop.changelog.name).committed
        for partition in range(world.partitions):
            where = f"{hop.changelog.name}/{partition}"
            logged, left_open = state.rebuilt(spec, changelog.get(partition, []))
            if left_open:
                states.problems.append(f"{where}: keys were left open: {left_open[:_SHOWN]}")
            folders = [folder_of(worker, spec, hop, partition) for worker in world.everybody]
            copies = state.on_disk(folders, cut_short)
            if not copies:
                states.problems.append(f"{where}: nobody has it on disk")
                continue
            found = list(state.row_problems(world.case, logged, copies[0]))
            states.problems.extend(f"{where}: {problem}" for problem in found[:_SHOWN])
            position = state.source_position(spec, logged)
            both = {"from the changelog": logged, "on disk": copies[0]}
            states.states.append(state.PartitionStates(hop, partition, position, both))
            states = states._replace(rows=states.rows + state.row_count(logged))
    return states


def going_on(world: World, states: States, readings: Readings, answers: Answers) -> Iterator[str]:
    """Yield the problems of operators that go on over the states that were read."""
    for one in states.states:
        source = readings.as_sent(one.hop.topic, one.partition)
        answer = answers[one.hop.name, one.partition]
        for problem in state.going_on_problems(world.case.spec, one, source, answer):
            yield f"{one.hop.name}/{one.partition}: {problem}"


def _aborts(world: World) -> Transactions:
    """Transactions on the topics that records leave by."""
    spec = world.case.spec
    between = [hop.end.topic.name for hop in spec.hops() if hop.end is not None]
    whole = Transactions()
    for topic in (spec.sink.topic, *between):
        whole.add(transactions(world.data, topic, world.partitions))
    return whole
