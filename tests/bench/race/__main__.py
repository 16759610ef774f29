"""`python -m tests.bench.race`: headrace and its peers, from the same records, on one broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.services.broker.embedded import EmbeddedBroker
from tests.bench.race.chart import race_chart
from tests.bench.race.figures import rows
from tests.bench.race.options import Options, read_options
from tests.bench.race.race import race
from tests.bench.race.report import report
from tests.bench.race.results import Results, write_results

_BROKER_MIB = 512
# Every ten minutes a broker forgets producers whose last record is more than a day old, by event
# time; Kafka Streams then fails, exactly once, and restores. That is true, and not what is raced.
_BROKER_PROPERTIES = {"producer.id.expiration.check.interval.ms": str((1 << 31) - 1)}


def main() -> None:
    """Race as the command line says, and write what came of it."""
    options = read_options()
    # A contestant that was stopped may still be deleting files of its own.
    with TemporaryDirectory(prefix="race-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        if options.bootstrap_servers is not None:
            results = asyncio.run(race(options, options.bootstrap_servers, folder))
        else:
            results = _on_own_broker(options, folder)
    print(report(results))
    if options.results is not None:
        _write(results, options.results)


def _on_own_broker(options: Options, folder: Path) -> Results:
    broker = EmbeddedBroker(
        folder / "broker", properties=_BROKER_PROPERTIES, heap_mib=_BROKER_MIB, java_options=()
    )
    broker.start()
    try:
        return asyncio.run(race(options, broker.bootstrap_servers, folder))
    finally:
        broker.stop()


def _write(results: Results, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_results(results, folder / "race.json")
    (folder / "race.md").write_text(report(results), "utf-8")
    if results.runs:
        (folder / "race.svg").write_text(race_chart(list(rows(results.runs))), "utf-8")
    print(f"Written to {folder}.")


if __name__ == "__main__":
    main()
