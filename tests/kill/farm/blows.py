"""Carries out what hits brokers, the network between, and state that lies on disk."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from headrace.contracts.errors import StateOfAnotherPipeline
from headrace.services.broker.process import BrokerProcess
from headrace.services.state.overlay import Overlay
from headrace.services.state.rocks import RocksMemory, RocksStore
from tests.kill.farm.around import Around
from tests.kill.farm.changes import with_operators
from tests.kill.farm.draw import AROUND_KINDS, BROKER_KINDS, NET_KINDS, Blow
from tests.kill.farm.lives import Life
from tests.kill.farm.net import Net, ProxiedBrokers, Trap
from tests.kill.workers import Worker
from tests.kill.world import World

_SPRUNG_WITHIN_S = 15.0
_REFUSED_WITHIN_S = 60.0
_LOOK_AGAIN_S = 0.1
_ANSWER_WITHIN_S = 60.0
_MEMORY_BYTES = 8 << 20
_TRANSACTIONS = "__transaction_state"


class Blows:
    """The targets of strikes, and the strikes that were done."""

    def __init__(self, world: World, brokers: ProxiedBrokers, net: Net, around: Around) -> None:
        """No strike was done yet."""
        self._world = world
        self._around = around
        self.lives = [Life(world.case.spec, {})]
        """The options that there were, and are."""
        self._brokers = brokers
        self._net = net
        self._older = world.folder / "older"
        self.count: Counter[str] = Counter()
        self.broker_strikes = 0
        self.requests = 0
        """Requests that were late, lost, torn, slow, or not answered."""
        self.worker_kills = 0
        self.cut_short = world.disks.cut_short
        self.problems: list[str] = []

    def strike(self, blow: Blow) -> None:
        """Carry one out; what was broken is whole again afterwards, but for state."""
        self.count[blow.kind] += 1
        if blow.kind in BROKER_KINDS:
            self._strike_brokers(blow)
        elif blow.kind in NET_KINDS:
            self._strike_net(blow)
        elif blow.kind in AROUND_KINDS:
            self._strike_around(blow)
        elif blow.kind == "request":
            self._strike_request(blow)
        else:
            self._strike_state(blow)

    def keep_state(self) -> None:
        """Take a copy that is of last week later; nobody runs."""
        for worker in self._world.workers:
            shutil.copytree(worker.state_folder, self._older / worker.name)

    def _strike_brokers(self, blow: Blow) -> None:
        broker = self._brokers.brokers[blow.broker]
        self.broker_strikes += 1
        match blow.kind:
            case "broker killed":
                with self._without(broker, broker.kill):
                    time.sleep(blow.for_s)
            case "broker stopped":
                with self._without(broker, broker.stop):
                    time.sleep(blow.for_s)
            case "broker frozen":
                broker.pause()
                time.sleep(blow.for_s)
                broker.resume()
            case "brokers in turn":
                self.broker_strikes += len(self._brokers.brokers) - 1
                for one in self._brokers.brokers:
                    with self._without(one, one.kill):
                        time.sleep(blow.for_s / len(self._brokers.brokers))
            case "broker and worker":
                with self._without(broker, broker.kill):
                    time.sleep(blow.for_s / 2)
                    self._kill(self._world.workers[blow.worker])
                    self._start_workers()
                    time.sleep(blow.for_s / 2)
            case _:
                self._stop_coordinator(blow)

    def _stop_coordinator(self, blow: Blow) -> None:
        of_group = blow.kind == "coordinator of the group stopped"
        ask = _group_coordinator if of_group else _transactions_coordinator
        servers, group = self._brokers.plain_servers, self._world.case.spec.pipeline
        number = asyncio.run(ask(servers, group))
        broker = self._brokers.brokers[number - 1]
        with self._without(broker, broker.stop):
            time.sleep(blow.for_s)

    @contextmanager
    def _without(self, broker: BrokerProcess, end: Callable[[], object]) -> Iterator[None]:
        end()
        yield
        broker.launch()
        broker.wait_ready(len(self._brokers.brokers))

    def _strike_net(self, blow: Blow) -> None:
        match blow.kind:
            case "cut":
                self._net.cut()
            case "slow" | "mute" | "deaf" as weather:
                self._net.become(weather)
                time.sleep(blow.for_s)
                self._net.become("clear")
            case _:
                message = f"{blow.kind} does not hit the network"
                raise AssertionError(message)

    def _strike_request(self, blow: Blow) -> None:
        trap = Trap(blow.request, blow.fate, blow.before, blow.passes)
        self._net.set_trap(trap)
        if trap.wait(_SPRUNG_WITHIN_S):
            self.requests += 1
            self.count[f"{blow.request.name} {blow.fate.value}"] += 1
        self._net.set_trap(None)

    def _strike_around(self, blow: Blow) -> None:
        worker = self._world.workers[blow.worker]
        match blow.kind:
            case "options changed":
                spec = with_operators(self._world.case.spec, blow.operators)
                self.lives.append(Life(spec, self._world.change(spec)))
            case "disk full":
                self.worker_kills += self._around.fill_disk(worker, blow.room_bytes)
            case _:
                self.worker_kills += self._around.shift_clock(worker, blow.shift_ms, blow.for_s)

    def _strike_state(self, blow: Blow) -> None:
        worker = self._world.workers[blow.worker]
        self._kill(worker)
        match blow.kind:
            case "state cut short":
                self.cut_short.update(_cut_short(worker.state_folder))
            case "state of last week":
                worker.wipe()
                shutil.copytree(self._older / worker.name, worker.state_folder)
            case _:
                self._give_another_pipeline(worker)

    def _give_another_pipeline(self, worker: Worker) -> None:
        """A worker ends with a sentence over such a database; then its disk is replaced."""
        for current in list(worker.state_folder.rglob("CURRENT")):
            shutil.rmtree(current.parent)
            store = RocksStore(current.parent, RocksMemory(_MEMORY_BYTES))
            Overlay(store, "another").commit({})
            store.close()
        known = len(worker.unexpected)
        worker.start()
        give_up_at = time.monotonic() + _REFUSED_WITHIN_S
        # A worker that gets other partitions than before has no such database, and just works.
        while worker.pid is not None and not worker.works() and time.monotonic() < give_up_at:
            time.sleep(_LOOK_AGAIN_S)
            worker.look()
        ended = worker.unexpected[known:]
        del worker.unexpected[known:]
        refused = f"ended with {StateOfAnotherPipeline.exit_code} "
        self.problems += [line for line in ended if refused not in line]
        self._kill(worker)
        worker.wipe()

    def _kill(self, worker: Worker) -> None:
        if worker.kill():
            self.worker_kills += 1

    def _start_workers(self) -> None:
        for worker in self._world.workers:
            worker.look()
            worker.start()


def _cut_short(state: Path) -> Iterator[Path]:
    """Cut the newest file of each database in half, and yield the database."""
    for current in list(state.rglob("CURRENT")):
        files = [one for one in current.parent.iterdir() if one.suffix in {".log", ".sst"}]
        if files:
            newest = max(files, key=lambda one: one.stat().st_mtime_ns)
            with newest.open("r+b") as file:
                file.truncate(newest.stat().st_size // 2)
            yield current.parent


async def _group_coordinator(servers: str, group: str) -> int:
    async def ask(admin: AIOKafkaAdminClient) -> int:
        return int(await admin.find_coordinator(group))

    return await _asked(servers, ask)


async def _transactions_coordinator(servers: str, group: str) -> int:
    """Return the coordinator of the first of their partitions; each broker has some of them."""
    del group

    async def ask(admin: AIOKafkaAdminClient) -> int:
        (topic,) = await admin.describe_topics([_TRANSACTIONS])
        leaders = [one["leader"] for one in topic["partitions"] if one["leader"] > 0]
        return int(leaders[0]) if leaders else 1

    return await _asked(servers, ask)


async def _asked(servers: str, ask: Callable[[AIOKafkaAdminClient], Awaitable[int]]) -> int:
    """An answer, once there is one: a coordinator that moves has none for a while."""
    async with asyncio.timeout(_ANSWER_WITHIN_S):
        while True:
            admin = AIOKafkaAdminClient(bootstrap_servers=servers)
            try:
                await admin.start()
                return await ask(admin)
            except KafkaError:
                await asyncio.sleep(_LOOK_AGAIN_S)
            finally:
                await admin.close()
