"""The race as a page for people: what was measured, where, and by which command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tests.bench.race import source
from tests.bench.race.contestants import CONTESTANTS
from tests.bench.race.figures import Figures, Row, Spread, rows
from tests.bench.race.latency import Latency
from tests.bench.race.results import Circumstances, Results

MEASURED_AGAINST = frozenset({"streams", "streams-parallel", "streams-cache"})
"""Each as its users may start it; the fastest counts."""
_NONE = Spread(0.0, 0.0, 0.0)
_TITLES = {
    "copy": "The floor: read, write, commit, nothing else",
    "deduplicate": f"Deduplicate by key, interval {source.INTERVAL_MS // 1000} s",
    "reorder": f"Reorder, grace {source.GRACE_MS // 1000} s",
    "suppress": f"Suppress until a time limit of {source.LIMIT_MS // 1000} s",
    "windowed-count": (
        f"Count by key in windows of {source.WINDOW_MS // 1000} s, final results,"
        f" grace {source.WINDOW_GRACE_MS // 1000} s"
    ),
}
_HEADINGS = (
    "who",
    "guarantee",
    "warm, records/CPU-s",
    "vs Streams",
    "worst round",
    "warm, records/s",
    "vs Streams",
    "whole, records/CPU-s",
    "vs Streams",
    "start-up, s",
    "memory, MiB",
)
_RULES = """\
All contestants read the same topic on the same broker. Their output was read back after each run
and compared: number of records, a checksum over keys, values and timestamps, and for deduplicate
and reorder the order in each partition. A run counts from the first commit that is seen to the last
one (records/s: to the last record of the output); CPU time is that of all threads of the worker's
process, without the broker's. Start-up, until that first commit, stands apart. *Warm* counts from
the middle of the input on, when Java's compilers are done: a service runs for months. *Whole*
counts from the first commit on. Figures are medians, with the least and the most of all rounds; *vs
Streams* divides by the median of the fastest Kafka Streams with one thread and that guarantee, and
*worst round* is the least such ratio of a round. Rounds are interleaved, every other one backwards.
Each run waits until the broker is done with what the one before it left.

These settings make all of them say the same:

- The last record of each partition is an hour ahead, so that everybody lets go of what he holds.
- Kafka Streams: `reorder` is a left join with grace (KIP-923) on an empty versioned table, its
  nearest twin. `deduplicate` is KIP-655's processor over two persistent stores. The buffer of its
  `suppress` is in memory; the table before it has no cache, which would merge updates as commits
  happen to fall. All else, RocksDB's options included, is as it comes. Java runs with G1, its own
  choice here, and with the Parallel collector. *Cache turned over*: deduplicate's stores with a
  cache, which they come without, and the count's without the one that it comes with.
- Quix Streams and Faust keep the timestamp of each key and forget none; stream time, which decides
  whether a saved record still counts, they keep in a plain variable. Quix closes final results by
  partition; their timestamps and keys are set to what Kafka Streams writes.
- Faust is stopped early: what it wrote is the beginning of what the others wrote.
- Headers are not compared: headrace writes a result's window into one."""


def report(results: Results) -> str:
    """The whole page."""
    parts = ["# The race", *_circumstances(results.circumstances), _RULES]
    by_operator: dict[str, list[Row]] = {}
    for row in rows(results.runs):
        by_operator.setdefault(row.operator, []).append(row)
    for operator, group in by_operator.items():
        parts += [f"## {_TITLES[operator]}", _table(_HEADINGS, _lines(group, results.runs))]
    if results.latencies:
        parts += [
            "## Latency of deduplicate, exactly once, commits every 100 ms",
            _latency(results),
        ]
    if results.restores:
        parts += ["## Restore of deduplicate's state from its changelog", _restore(results)]
    return "\n\n".join(parts) + "\n"


def _circumstances(circumstances: Circumstances) -> Iterator[str]:
    yield f"```sh\n{circumstances.command}\n```"
    machine = ", ".join(circumstances.machine.values())
    versions = ", ".join(f"{name} {version}" for name, version in circumstances.versions.items())
    yield (
        f"On {machine}; load averages (1, 5, 15 minutes) {circumstances.loads[0]} before and"
        f" {circumstances.loads[-1]} after. {versions}. {circumstances.records:,} records of"
        f" 100 bytes over {circumstances.keys:,} keys in {source.PARTITIONS} partitions, a"
        " millisecond apart, a tenth of them up to 5 s late, one in a thousand 12 to 20 s;"
        f" a commit every {circumstances.commit_interval_ms} ms; {circumstances.rounds} rounds."
    )


def _lines(group: Sequence[Row], runs: Sequence[Figures]) -> Iterator[Sequence[str]]:
    for row in group:
        best = _fastest(group, row.guarantee)
        yield (
            CONTESTANTS[row.contestant].title,
            row.guarantee,
            _spread(row.steady_per_cpu_second),
            _ratio(row.steady_per_cpu_second, best and best.steady_per_cpu_second),
            _worst_round(row, best, runs),
            _spread(row.steady_per_second),
            _ratio(row.steady_per_second, best and best.steady_per_second),
            _spread(row.whole_per_cpu_second),
            _ratio(row.whole_per_cpu_second, best and best.whole_per_cpu_second),
            f"{row.start_up_seconds:.1f}",
            f"{row.resident_bytes / (1 << 20):,.0f}",
        )


def _fastest(group: Sequence[Row], guarantee: str) -> Row | None:
    """The Kafka Streams that does most with a CPU-second, once it is warm."""
    streams = [
        row
        for row in group
        if row.guarantee == guarantee
        and row.contestant in MEASURED_AGAINST
        and row.steady_per_cpu_second is not None
    ]
    return max(streams, key=lambda row: row.steady_per_cpu_second or _NONE, default=None)


def _worst_round(row: Row, best: Row | None, runs: Sequence[Figures]) -> str:
    """The least of all rounds' ratios."""
    if best is None:
        return ""
    mine, theirs = (_by_round(one, runs) for one in (row, best))
    ratios = [mine[number] / theirs[number] for number in mine.keys() & theirs.keys()]
    return f"{min(ratios):.1f}x" if ratios else ""


def _by_round(row: Row, runs: Sequence[Figures]) -> dict[int | str, float]:
    return {
        run.round: run.steady_per_cpu_second
        for run in runs
        if run[:3] == row[:3] and run.steady_per_cpu_second is not None
    }


def _latency(results: Results) -> str:
    headings = ("who", "records/s", "p50, ms", "p95, ms", "p99, ms", "all rounds", "CPU-s a second")
    rounds: dict[str, list[Latency]] = {}
    for one in results.latencies:
        rounds.setdefault(one.contestant, []).append(one)
    return _table(headings, [_middle_of(of_one) for of_one in rounds.values()])


def _middle_of(rounds: list[Latency]) -> Sequence[str]:
    """The round in the middle, and from where to where the p99 of all of them goes."""
    ordered = sorted(rounds, key=lambda one: one.p99_ms)
    one = ordered[len(ordered) // 2]
    return (
        CONTESTANTS[one.contestant].title,
        f"{one.records_per_second:,}",
        *(f"{value:,.0f}" for value in (one.median_ms, one.p95_ms, one.p99_ms)),
        f"{ordered[0].p99_ms:,.0f}-{ordered[-1].p99_ms:,.0f}",
        f"{one.cpu_share:.2f}",
    )


def _restore(results: Results) -> str:
    headings = ("who", "rows", "s", "CPU-s", "rows/s", "rows/CPU-s")
    lines = [
        (
            CONTESTANTS[one.contestant].title,
            f"{one.rows:,}",
            f"{one.seconds:.1f}",
            f"{one.cpu_seconds:.1f}",
            f"{one.rows / one.seconds:,.0f}",
            f"{one.rows / one.cpu_seconds:,.0f}",
        )
        for one in results.restores
    ]
    return _table(headings, lines)


def _table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    ruler = ["---", *["---:" for _ in headings[1:]]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, ruler, *lines))


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "too short"
    if spread.least == spread.most:
        return f"{spread.median:,.0f}"
    return f"{spread.median:,.0f} ({spread.least:,.0f} to {spread.most:,.0f})"


def _ratio(mine: Spread | None, theirs: Spread | None) -> str:
    return "" if mine is None or theirs is None else f"{mine.median / theirs.median:.1f}x"
