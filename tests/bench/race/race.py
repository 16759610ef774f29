"""The whole race: every run in turn, then latency, then restore."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.bench.race.cluster import opened
from tests.bench.race.contestants import CONTESTANTS, Guarantee
from tests.bench.race.figures import Figures
from tests.bench.race.heats import Heat, Track, heats
from tests.bench.race.latency import Latency, latency
from tests.bench.race.machine import at_rest, load, machine, versions
from tests.bench.race.options import LATENCY, RESTORE, Options
from tests.bench.race.restore import Restore, bare, restore
from tests.bench.race.results import Circumstances, Results
from tests.bench.race.source import Source

_LATENCY_COMMIT_INTERVAL_MS = 100
_IN_LATENCY = ("headrace", "bare", "streams")
_IN_RESTORE = ("headrace", "streams")


async def race(options: Options, bootstrap_servers: str, folder: Path) -> Results:
    """Everything that the options name."""
    contestants = [
        replace(CONTESTANTS[name], guarantees=guarantees)
        for name in options.peers
        if (guarantees := _both(CONTESTANTS[name].guarantees, options.guarantees))
    ]
    for contestant in contestants:
        contestant.prepare()
    before = load()
    runs: list[Figures] = []
    latencies: list[Latency] = []
    restores: list[Restore] = []
    async with opened(bootstrap_servers) as cluster:
        track = Track(cluster, Source(options.records, options.keys), folder)
        try:
            await track.prepare()
            for heat in heats(options.rounds, options.only, contestants):
                await at_rest()
                runs.append(await track.run(heat, options.commit_interval_ms))
                print(_line(runs[-1]), flush=True)
            if LATENCY in options.only:
                latencies = [one async for one in _latencies(track, options)]
            if RESTORE in options.only:
                restores = [one async for one in _restores(track, options)]
        finally:
            await track.clear()
    circumstances = Circumstances(
        options.command,
        machine(),
        versions(),
        [before, load()],
        options.records,
        options.keys,
        options.rounds,
        options.commit_interval_ms,
    )
    return Results(circumstances, runs, latencies, restores)


async def _latencies(track: Track, options: Options) -> AsyncIterator[Latency]:
    """Each at his load, in turn, as often as there are rounds."""
    names = [name for name in _IN_LATENCY if name in options.peers]
    loads = await _loads(track, names)
    for number in range(options.rounds):
        for name in names:
            heat = _latency_heat(name, f"latency-{number}")
            job = track.job(heat, _LATENCY_COMMIT_INTERVAL_MS)
            yield await latency(
                track.cluster, heat.contestant, job, loads[name], options.latency_seconds
            )
            await track.forget(job)


async def _loads(track: Track, names: list[str]) -> dict[str, int]:
    """Half of what each can do, in records per second; the bare client has headrace's."""
    loads: dict[str, int] = {}
    for name in names:
        if name == "bare" and "headrace" in loads:
            loads[name] = loads["headrace"]
        else:
            whole = await track.run(_latency_heat(name, "latency"), _LATENCY_COMMIT_INTERVAL_MS)
            loads[name] = int(whole.steady_per_second or 0) // 2
    return loads


def _latency_heat(name: str, number: str) -> Heat:
    operator = "copy" if name == "bare" else "deduplicate"
    return Heat(number, operator, CONTESTANTS[name], "exactly-once")


async def _restores(track: Track, options: Options) -> AsyncIterator[Restore]:
    """Each from his own changelogs, the bare client from headrace's."""
    for name in _IN_RESTORE:
        if name in options.peers:
            heat = Heat("restore", "deduplicate", CONTESTANTS[name], "exactly-once")
            job = track.job(heat, options.commit_interval_ms)
            yield await restore(track.cluster, heat.contestant, job, options.records)
            if name == "headrace":
                yield await bare(track.cluster, job)
            await track.forget(job)


def _both(known: tuple[Guarantee, ...], wanted: Sequence[Guarantee]) -> tuple[Guarantee, ...]:
    return tuple(one for one in known if one in wanted)


def _line(run: Figures) -> str:
    rates = (run.steady_per_cpu_second, run.steady_per_second)
    told = " ".join(f"{rate:>10,.0f}" if rate is not None else f"{'-':>10}" for rate in rates)
    who = f"{run.round} {run.operator} {run.contestant} {run.guarantee}"
    return f"{who:<50}{told}   load {load()}"
