"""`python -m tests.bench.repartition`: CPU seconds of a sidecar behind whose source records spread.

A backlog waits in every partition of the source; one instance leads it through a repartition, with
its shipped settings. Every contestant reads the same records on the same broker, in turn: this
version, the one before records carried their origin (`tests/runtime/version_before.tar.xz`), and
what `--code` names. The bench counts the CPU time of the process (all threads, from the kernel),
from the first commit that it sees to the last. It reports start-up, which is before, apart.
"""

from __future__ import annotations

import argparse
import os
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from subprocess import DEVNULL, Popen
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import NamedTuple

from headrace.contracts.record import Record
from headrace.services.broker.embedded import EmbeddedBroker
from tests.bench.processes import stat_of
from tests.kafka.clients import FOREVER, Clients, fresh_name

_ROOT = Path(__file__).parents[3]
_BEFORE = _ROOT / "tests" / "runtime" / "version_before.tar.xz"
_BROKER_MIB = 768
_LOOK_S = 0.2
_QUIET_S = 3.0
"""The work is done once nobody has committed anything for so long."""
_WITHIN_S = 150.0
_START_MS = 1_700_000_000_000
_VALUE = b"x" * 100
_BEHIND_MS = 500
_DEDUPLICATE = "deduplicate: {{by: id, id: {id}, interval: 10m}}"
_PIPELINES = {
    "by id": (_DEDUPLICATE,),
    "by id, reorder": (_DEDUPLICATE, "reorder: {{grace: 2s}}"),
    "by id, count": (
        _DEDUPLICATE,
        "aggregate: {{function: count, window: {{kind: tumbling, size: 10s, grace: 2s}}}}",
    ),
}


class Options(NamedTuple):
    """The options of the command line."""

    records: int
    partitions: int
    pipelines: list[str]
    id: str
    rounds: int
    code: list[str]


class Figures(NamedTuple):
    """The figures of one run."""

    start_s: float
    """CPU seconds before the first commit."""
    cpu_s: float
    wall_s: float
    cleaned: int


def main() -> None:
    """Run every contestant on every pipeline, in turn."""
    options = _options()
    print("| pipeline | code | start, CPU s | CPU s | records/CPU-s | s | cleaned |")
    print("|---|---|---|---|---|---|---|")
    with TemporaryDirectory(prefix="repartition-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        broker = EmbeddedBroker(folder / "broker", heap_mib=_BROKER_MIB)
        broker.start()
        try:
            source = _fill(Clients(broker.bootstrap_servers), options)
            for name in options.pipelines:
                for number in range(options.rounds):
                    codes = list(_codes(options, folder))
                    # The first to run pays for records that are not in the broker's caches yet.
                    for code, found in codes[number % 2 :] + codes[: number % 2]:
                        figures = _run(
                            broker.bootstrap_servers, folder, source, name, options, found
                        )
                        per_s = options.records / figures.cpu_s
                        print(
                            f"| {name} | {code} | {figures.start_s:.1f} | {figures.cpu_s:.2f}"
                            f" | {per_s:,.0f} | {figures.wall_s:.1f} | {figures.cleaned} |",
                            flush=True,
                        )
        finally:
            broker.stop()


def _codes(options: Options, folder: Path) -> Iterator[tuple[str, Path]]:
    """The name of every contestant, and the folder to import it from."""
    yield "this", _ROOT / "src"
    for code in options.code:
        name, _, path = code.partition("=")
        if path:
            yield name, Path(path)
            continue
        before = folder / name
        if not before.exists():
            with tarfile.open(_BEFORE) as files:
                files.extractall(before, filter="data")
        yield name, before


def _fill(clients: Clients, options: Options) -> str:
    """A topic in which time moves a millisecond a record, and all partitions are about as far."""
    source = clients.make_topic(fresh_name("raw"), options.partitions, FOREVER)
    luck = Random(19)
    at_once = 100_000
    for first in range(0, options.records, at_once):
        clients.produce(
            source,
            [
                Record(
                    b"%016x" % luck.getrandbits(64)
                    if options.id == "key"
                    else b"k%d" % (number % 997),
                    _VALUE,
                    _START_MS + number - luck.randrange(_BEHIND_MS),
                    (("id", b"%d" % number),) if options.id != "key" else (),
                    "",
                    luck.randrange(options.partitions),
                    None,
                )
                for number in range(first, min(options.records, first + at_once))
            ],
        )
    return source


def _run(
    servers: str, folder: Path, source: str, name: str, options: Options, code: Path
) -> Figures:
    pipeline = fresh_name("bench")
    file = folder / f"{pipeline}.yaml"
    operators = "".join(f"  - {line.format(id=options.id)}\n" for line in _PIPELINES[name])
    file.write_text(
        f"pipeline: {pipeline}\nsource: {{topic: {source}}}\n"
        f"operators:\n{operators}sink: {{topic: {pipeline}.cleaned}}\n",
        "utf-8",
    )
    clients = Clients(servers)
    with _running(servers, file, code, folder / pipeline) as process:
        committed: dict[tuple[str, int], int] = {}
        started = changed = monotonic()
        start_s: float | None = None
        first_at = last_cpu_s = 0.0
        while not committed or monotonic() - changed < _QUIET_S:
            sleep(_LOOK_S)
            assert process.poll() is None, (folder / f"{pipeline}.yaml.log").read_text("utf-8")
            assert monotonic() - started < _WITHIN_S, "it takes too long"
            cpu_s = stat_of(process.pid).cpu_seconds
            found = clients.committed_offsets(pipeline)
            if found and start_s is None:
                start_s, first_at = cpu_s, monotonic()
            done = sum(at for (topic, _), at in found.items() if topic == source)
            if found != committed:
                committed, changed, last_cpu_s = found, monotonic(), cpu_s
            elif done < options.records:
                changed = monotonic()
    assert start_s is not None
    cleaned = len(clients.consume_all(f"{pipeline}.cleaned"))
    return Figures(start_s, last_cpu_s - start_s, changed - first_at, cleaned)


@contextmanager
def _running(servers: str, file: Path, code: Path, state: Path) -> Iterator[Popen[bytes]]:
    module = "headrace.services.cli" if (code / "headrace").exists() else "services.cli"
    words = f"import sys; sys.path.insert(0, {str(code)!r}); from {module} import main; main()"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    told = {"HEADRACE_BOOTSTRAP_SERVERS": servers, "HEADRACE_STATE_FOLDER": str(state)}
    with (file.parent / f"{file.name}.log").open("wb") as log:
        process = Popen(
            [sys.executable, "-P", "-c", words, "run", str(file)],
            env={**plain, **told},
            cwd=file.parent,
            stdin=DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def _options() -> Options:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--pipelines", nargs="+", choices=_PIPELINES, default=list(_PIPELINES))
    parser.add_argument("--id", choices=["key", "header.id"], default="header.id")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--code", nargs="*", default=["before"], help="NAME=FOLDER to import from, or a name alone"
    )
    return Options(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
