"""The race as a page for people: what was measured, where, and by which command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.bench.race import source
from tests.bench.race.contestants import CONTESTANTS
from tests.bench.race.figures import Row, Spread, rows
from tests.bench.race.latency import Latency
from tests.bench.race.results import Circumstances, Results

_MEASURED_AGAINST = "streams"
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
    "records/CPU-s",
    "vs Streams",
    "records/s",
    "vs Streams",
    "2nd half, records/CPU-s",
    "start-up, s",
    "memory, MiB",
)
_RULES = """\
All contestants read the same topic on the same broker. What they wrote was read back after each run
and compared: number of records, a checksum over keys, values and timestamps, and for deduplicate
and reorder the order in each partition. A run counts from the first commit that is seen to the last
one (records/s: to the last record of the output); CPU time is that of all threads of the worker's
process, without the broker's. Start-up, until that first commit, stands apart. *2nd half* counts
from the middle of the input on, when Java's compilers are done. Figures are medians, with the least
and the most of all rounds; rounds are interleaved, every other one backwards. Each run waits until
the broker is done with what the one before it left.

What had to be set so that all say the same:

- The last record of each partition is an hour ahead, so that everybody lets go of what he holds.
- Kafka Streams: `reorder` is a left join with grace (KIP-923) on an empty versioned table, its
  nearest twin. `deduplicate` is KIP-655's processor over two persistent stores. The buffer of its
  `suppress` is in memory; the table before it has no cache, which would merge updates as commits
  happen to fall. All else, RocksDB's and Java's options included, is as it comes.
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
        parts += [f"## {_TITLES[operator]}", _table(_HEADINGS, _lines(group))]
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


def _lines(group: Sequence[Row]) -> Iterator[Sequence[str]]:
    against = {row.guarantee: row for row in group if row.contestant == _MEASURED_AGAINST}
    for row in group:
        yield (
            CONTESTANTS[row.contestant].title,
            row.guarantee,
            _spread(row.per_cpu_second),
            _ratio(row.per_cpu_second, _of(against, row).per_cpu_second),
            _spread(row.per_second),
            _ratio(row.per_second, _of(against, row).per_second),
            _spread(row.second_half_per_cpu_second),
            f"{row.start_up_seconds:.1f}",
            f"{row.resident_bytes / (1 << 20):,.0f}",
        )


def _of(against: Mapping[str, Row], row: Row) -> Row:
    nothing = Row(row.contestant, row.operator, row.guarantee, None, None, None, 0.0, 0)
    return against.get(row.guarantee, nothing)


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
