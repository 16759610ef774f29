"""A plan of strikes made from a seed, and its execution.

A plan is made of hands of ten kills. Each hand has everything in it, shuffled: plain kills, one of
them with the disk lost, kills while state is restored and right behind a commit, both workers at
once, a nap in which the broker aborts a transaction whose owner keeps its partitions, a zombie that
wakes up when its partitions are another's, a zombie whose heir is killed in the very moment in
which it wakes up, a polite stop, and a third worker that comes and goes, or is killed.

Each strike waits for a moment that hurts (see `moments`), and then a random while: times are random
on purpose, and waiting them out is what makes them so.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from tests.kill.disk import Disks
from tests.kill.moments import Moment, Moments
from tests.kill.workers import Worker

KILLS_A_HAND = 10
Kind = Literal[
    "kill", "both", "nap", "zombie", "zombie and heir", "stop", "guest", "guest killed", "broker"
]
_MOMENTS: tuple[Moment, ...] = (
    "open", "open", "open", "committing", "committing", "committed", "restoring", "working", "any",
)  # fmt: skip
_SOON_S: dict[Moment, float] = {"open": 0.015, "committing": 0.005, "committed": 0.005}
"""The longest time between a moment and the blow. Half of all blows fall within an eighth of it:
on a quick machine a commit is over in 5 ms, on a busy one it takes 50."""
_AFTER_S: dict[Moment, float] = {"restoring": 0.4}
"""The same for moments that last, any time alike; for others it is `_ELSE_AFTER_S`."""
_ELSE_AFTER_S = 1.5
_WITHOUT_TRANSACTIONS: dict[Moment, Moment] = {
    "open": "working", "committing": "working", "committed": "working",
}  # fmt: skip
"""Where there are none, none is ever open."""
_MOMENT_WITHIN_S = 20.0
_KILLS: dict[Kind, int] = {"kill": 1, "both": 2, "zombie and heir": 1, "guest killed": 1}


class Strike(NamedTuple):
    """One blow."""

    moment: Moment
    """The step that the victim must be at."""
    after_s: float
    """How long after that."""
    kind: Kind
    worker: int
    """Whom it hits, 0 or 1."""
    for_s: float
    """How long he stays away, is frozen beyond his session, or is a guest."""
    wipes: bool = False
    """Whether his disk is lost."""

    @property
    def kills(self) -> int:
        """How many workers are killed."""
        return _KILLS.get(self.kind, 0)

    @property
    def tears(self) -> bool:
        """Whether it is a kill, or a nap, that leaves no time to commit."""
        return self.kind in {"kill", "nap"} and self.moment == "open" and not self.after_s

    def __str__(self) -> str:
        """As a line of the plan."""
        wiped = ", disk lost" if self.wipes else ""
        victim = f"w{self.worker}, {1000 * self.after_s:.0f} ms after it was {self.moment}"
        return f"{self.kind} {victim}; for {self.for_s:.1f} s{wiped}"


class Target(Protocol):
    """The targets of strikes."""

    workers: list[Worker]
    guest: Worker
    moments: Moments
    disks: Disks
    exactly_once: bool
    nap_s: float
    """Longer than a transaction may last, shorter than a session."""
    session_s: float

    def restart_broker(self) -> None:
        """Kill the broker, and start it again."""


@dataclass
class Struck:
    """The strikes that were done."""

    kills_at: list[float] = field(default_factory=list)
    """When, by the wall clock in seconds."""
    count: Counter[Kind] = field(default_factory=Counter)
    """Strikes by kind."""
    moments: Counter[Moment] = field(default_factory=Counter)
    """Strikes whose moment came, by moment."""
    wiped: int = 0


def plan(
    seed: int, kills: int, *, broker_too: bool = False, exactly_once: bool = True
) -> list[Strike]:
    """Strikes with at least so many kills, and no strike behind the last of them."""
    draw = random.Random(f"chaos {seed}")
    strikes: list[Strike] = []
    left = kills
    while left > 0:
        for strike in _hand(draw, broker_too=broker_too):
            if left > 0:
                strikes.append(strike)
                left -= strike.kills
    if exactly_once:
        return strikes
    return [
        one._replace(moment=_WITHOUT_TRANSACTIONS.get(one.moment, one.moment)) for one in strikes
    ]


def _hand(draw: random.Random, *, broker_too: bool) -> list[Strike]:
    def strike(kind: Kind, longest_s: float, *, wipes: bool = False) -> Strike:
        moment = draw.choice(_MOMENTS)
        if moment in _SOON_S:
            after_s = draw.random() ** 3 * _SOON_S[moment]
        else:
            after_s = draw.uniform(0.0, _AFTER_S.get(moment, _ELSE_AFTER_S))
        for_s = draw.uniform(0.0, longest_s)
        return Strike(moment, after_s, kind, draw.randrange(2), for_s, wipes)

    hand = [
        *(strike("kill", 1.5) for _ in range(2)),
        strike("kill", 1.5)._replace(moment="open", after_s=0.0),
        strike("kill", 1.0, wipes=True),
        strike("kill", 0.1)._replace(moment="restoring"),
        strike("kill", 1.0)._replace(moment="committed", after_s=0.0),
        strike("both", 1.0, wipes=draw.random() < 0.5),
        strike("nap", 0.0)._replace(moment="open", after_s=0.0),
        strike("zombie", 1.5),
        strike("zombie and heir", 1.0),
        strike("stop", 1.0),
        strike("guest" if draw.random() < 0.5 else "guest killed", 3.0),
    ]
    if sum(one.kills for one in hand) < KILLS_A_HAND:
        hand.append(strike("kill", 1.5, wipes=True))
    if broker_too:
        hand.append(strike("broker", 0.0))
    draw.shuffle(hand)
    return hand


class Chaos:
    """Carries out a plan."""

    def __init__(self, target: Target, tell: Callable[[str], None]) -> None:
        """Hit this target; `tell` hears of every strike."""
        self._target = target
        self._tell = tell
        self.struck = Struck()

    def run(self, strikes: list[Strike]) -> None:
        """One after the other; all regular workers run afterwards."""
        for number, strike in enumerate(strikes, start=1):
            victim = self._target.workers[strike.worker]
            holds = strike.tears
            if self._target.moments.wait(strike.moment, victim, _MOMENT_WITHIN_S, holds=holds):
                self.struck.moments[strike.moment] += 1
            self._tell(f"{number}/{len(strikes)} {strike}")
            # The plan's own delay: nothing is waited for, the blow is to fall anywhere in a commit.
            time.sleep(strike.after_s)
            self.struck.count[strike.kind] += 1
            for _ in self._strike(strike):
                time.sleep(strike.for_s)
            for worker in self._target.workers:
                worker.look()
                worker.start()

    def _strike(self, strike: Strike) -> Iterator[None]:
        """Yields where the strike's own time is to pass."""
        workers = self._target.workers
        one, other = workers[strike.worker], workers[1 - strike.worker]
        match strike.kind:
            case "kill":
                self._kill(one, wipes=strike.wipes)
                yield
            case "both":
                self._kill(one, wipes=strike.wipes)
                self._kill(other)
                yield
            case "nap":
                one.freeze()
                time.sleep(self._target.nap_s)
                one.thaw()
            case "zombie":
                one.freeze()
                time.sleep(self._target.session_s)
                yield
                one.thaw()
            case "zombie and heir":
                one.freeze()
                time.sleep(self._target.session_s)
                yield
                self._kill(other)
                one.thaw()
            case "stop":
                one.stop()
                yield
            case "guest" | "guest killed":
                yield from self._invite(strike)
            case "broker":
                self._target.restart_broker()

    def _invite(self, strike: Strike) -> Iterator[None]:
        guest = self._target.guest
        guest.start()
        time.sleep(1.5)
        yield
        if strike.kind == "guest":
            guest.stop()
        else:
            self._kill(guest, wipes=strike.wipes)

    def _kill(self, worker: Worker, *, wipes: bool = False) -> None:
        if worker.kill():
            self.struck.kills_at.append(_clock_s())
            if self._target.exactly_once:
                self._target.disks.look(worker)
        if wipes:
            worker.wipe()
            self.struck.wiped += 1


def _clock_s() -> float:
    """The wall clock, by which the broker dates the markers of transactions."""
    return time.time()  # noqa: TID251 - two processes are compared, nothing is computed from it
