"""Pipelines on a real broker, and the processes that run them, as an operator would see both.

    pipeline = make_pipeline("deduplicate: {by: key, interval: 10m}", partitions=2)
    pipeline.produce(records)
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert pipeline.cleaned() == ...

A process that ends while somebody waits for its work fails the test at once, with its log.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import yaml
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from headrace.contracts.hops import FIRST_HOP
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.progress import Progress, read_progress
from headrace.contracts.record import Headers, Record, offset_of
from headrace.services.cli import main
from tests.bench.processes import stat_of
from tests.kafka.clients import Clients, fresh_name
from tests.kafka.watch import OffsetsWatch

# Long enough for a machine at a fraction of its speed; nothing is measured by it.
WITHIN_S = 180.0
_ASK_AGAIN_S = 0.1
_SETTINGS = {
    "commit_interval": "50ms",
    "memory": "192MiB",
    # The group counts out who is silent for longer, and at least once that writes records again.
    "session_timeout": "1m",
    "heartbeat_interval": "200ms",
    "log_format": "text",
}
SHORT_SESSION = {"session_timeout": "6s"}
"""The broker's least: others wait so long for the partitions of an instance that was killed."""
Offsets = Mapping[tuple[str, int], int]


class Sidecar:
    """One process of `headrace run`; what it logs and its last words are one text."""

    def __init__(
        self,
        pipeline: Pipeline,
        instance: str,
        settings: Mapping[str, str],
        files_max: tuple[int, int] | None = None,
        code: Path | None = None,
    ) -> None:
        """Start it; it may open so many files, and raise that to so many.

        Another version of the program is started from a folder with its code.
        """
        self.log_file = pipeline.folder / f"{fresh_name(instance)}.log"
        self.log_file.touch()
        given = {"instance_id": instance, **_SETTINGS, **settings}
        environment = variables_of(pipeline, given)
        words = ["run", str(pipeline.file)]
        self._process = _NURSERY.Process(
            target=_headrace, args=(words, environment, self.log_file, files_max, code), daemon=True
        )
        self._process.start()

    @property
    def log(self) -> str:
        """All that it has said."""
        return self.log_file.read_text("utf-8")

    @property
    def last_words(self) -> str:
        """The last line that it said."""
        lines = self.log.splitlines()
        return lines[-1] if lines else ""

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        return self._process.exitcode

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process.pid is not None
        return self._process.pid

    def wait(self, within_s: float = WITHIN_S) -> int:
        """Wait until it has ended by itself; its exit code."""
        self._process.join(within_s)
        code = self._process.exitcode
        assert code is not None, f"it still runs after {within_s} s:\n{self.log}"
        return code

    def wait_for(self, sentence: str, within_s: float = WITHIN_S) -> None:
        """Wait until it has said this."""
        wait_until(lambda: sentence in self.log, f"`{sentence}`", [self], within_s)

    def terminate(self) -> None:
        """Tell it to stop, without waiting."""
        self._process.terminate()

    def stop(self, within_s: float = WITHIN_S) -> int:
        """Tell it to stop, and wait until it has; its exit code."""
        self._process.terminate()
        return self.wait(within_s)

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self._process.kill()
        self._process.join()

    def pause(self) -> None:
        """Freeze it."""
        os.kill(self.pid, signal.SIGSTOP)
        # Until its first thread hears that, all of it goes on.
        wait_until(lambda: stat_of(self.pid).state == "T", "its rest", [])

    def resume(self) -> None:
        """Let it go on after a pause."""
        os.kill(self.pid, signal.SIGCONT)


def _headrace(
    words: list[str],
    environment: dict[str, str],
    log_file: Path,
    files_max: tuple[int, int] | None,
    code: Path | None,
) -> None:
    """The command, in a process of its own, in the folder of its log."""
    if files_max is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, files_max)
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    os.chdir(log_file.parent)
    if code is not None:
        # It is of a time when its folders were packages of their own.
        found = f"import sys; sys.path.insert(0, {str(code)!r})"
        own = f"{found}; from services.cli import main; main()"
        os.execve(sys.executable, [sys.executable, "-P", "-c", own, *words], environment)  # noqa: S606
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["headrace", *words]
    main()


# A process that has imported everything is forked for each sidecar: a start takes a second less.
_NURSERY = multiprocessing.get_context("forkserver")
_NURSERY.set_forkserver_preload([__name__, "headrace.services.cli.run"])


class Pipeline:
    """A pipeline: its file, its topics, its state folder, and the processes that run it."""

    def __init__(
        self,
        servers: str,
        folder: Path,
        *operators: str,
        partitions: int = 1,
        source: str = "",
        raw: Mapping[str, str] | None = None,
    ) -> None:
        """Make the source topic, and write the file.

        Args:
            servers: Where its broker is.
            folder: Where its file, its state and its logs lie.
            operators: Each a line of YAML.
            partitions: Of the source.
            source: Further options of the source.
            raw: Settings of the source's topic, over those that keep any record.
        """
        self.servers = servers
        self.clients = Clients(servers)
        self.name = fresh_name("pipe")
        self.folder = folder / self.name
        self.folder.mkdir()
        self.file = self.folder / "pipeline.yaml"
        self.state = self.folder / "state"
        self.source = f"{self.name}.raw"
        self.sink = f"{self.name}.cleaned"
        self.sidecars: list[Sidecar] = []
        self._source = source
        self.write(*operators)
        self.clients.make_topic(self.source, partitions, {**_ANY_RECORD, **(raw or {})})

    def write(self, *operators: str, on_failure: str = "dead") -> None:
        """Change the operators; who runs already does not see it."""
        lines = "".join(f"  - {operator}\n" for operator in operators)
        options = f", {self._source}" if self._source else ""
        self.file.write_text(
            f"pipeline: {self.name}\nsource: {{topic: {self.source}{options}}}\n"
            f"operators:\n{lines}sink: {{topic: {self.sink}}}\non-failure: {on_failure}\n",
            "utf-8",
        )

    @property
    def spec(self) -> PipelineSpec:
        """The pipeline that the file describes now."""
        return PipelineSpec.model_validate(yaml.safe_load(self.file.read_text("utf-8")))

    def produce(self, records: Iterable[Record]) -> None:
        """Write records to the source."""
        self.clients.produce(self.source, records)

    def start(self, instance: str = "one", **settings: str) -> Sidecar:
        """Start a process; each instance has a folder of its own in the state's."""
        sidecar = Sidecar(self, instance, {"state_folder": str(self.state / instance), **settings})
        self.sidecars.append(sidecar)
        return sidecar

    def folder_of(self, instance: str = "one", hop: str = FIRST_HOP, partition: int = 0) -> Path:
        """Where an instance keeps the state of a partition."""
        return self.state / instance / self.name / hop / str(partition)

    def lose_state(self, instance: str = "one", hop: str = FIRST_HOP, partition: int = 0) -> None:
        """Delete what an instance that has ended keeps of a partition."""
        shutil.rmtree(self.folder_of(instance, hop, partition))

    def committed(self) -> dict[tuple[str, int], int]:
        """Return the offsets that the group has committed."""
        try:
            topics = [hop.topic for hop in self.spec.hops()]
            return self.clients.committed_offsets(self.name, topics)
        except KafkaError:
            # The group has no coordinator before it has ever been used, or in an outage.
            return {}

    def wait_until_done(self, within_s: float = WITHIN_S) -> None:
        """Wait until everything that can be read is committed, hop by hop."""
        for hop in self.spec.hops():
            self.wait_until_committed(readable_ends(self.clients, hop.topic), within_s)

    def wait_until_committed(self, offsets: Offsets, within_s: float = WITHIN_S) -> None:
        """Wait until the group has committed at least these offsets."""
        what = f"commits of {offsets}"
        with OffsetsWatch(self.clients, self.name, offsets) as watch:
            self.wait_until(lambda: reached(watch.ask(), offsets), what, within_s)

    def wait_for_cleaned(self, count: int, within_s: float = WITHIN_S) -> list[Record]:
        """Wait until there are so many cleaned records, and return all."""

        def are_there() -> bool:
            with suppress(UnknownTopicOrPartitionError):
                sent = sum(self.clients.end_offsets(self.sink).values())
                return sent >= count and len(self.cleaned()) >= count
            return False

        self.wait_until(are_there, f"{count} cleaned records", within_s)
        return self.cleaned()

    def wait_until(self, holds: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
        """Wait until something holds; who ends meanwhile, and was not killed, fails the test."""
        running = [sidecar for sidecar in self.sidecars if sidecar.exit_code is None]
        wait_until(holds, what, running, within_s)

    def cleaned(self) -> list[Record]:
        """All cleaned records, by partition and offset, once no transaction is open there."""
        return self.clients.consume_all(self.sink)

    def sent(self) -> list[Record]:
        """The same, and what stands in transactions that nobody committed."""
        return self.clients.consume_all(self.sink, read_committed=False)

    def beside(self, suffix: str) -> list[Record]:
        """All records of the topic that is named after the cleaned one, such as `dead`."""
        return self.clients.consume_all(f"{self.sink}.{suffix}")

    def progress(self) -> list[Progress]:
        """Return all rows of progress, in the order of their partitions."""
        rows = [read_progress(record.key, record.value) for record in self.beside("progress")]
        return [row for row in rows if row is not None]

    def close(self) -> None:
        """End every process."""
        for sidecar in self.sidecars:
            sidecar.resume() if sidecar.exit_code is None else None
            sidecar.kill()


class MakePipeline(Protocol):
    """Makes a pipeline; its processes are ended behind the test."""

    def __call__(
        self,
        *operators: str,
        partitions: int = 1,
        source: str = "",
        raw: Mapping[str, str] | None = None,
        servers: str | None = None,
    ) -> Pipeline:
        """Make it on the shared broker, or on the one at `servers`."""
        ...


@contextmanager
def making_pipelines(shared_servers: Callable[[], str], folder: Path) -> Iterator[MakePipeline]:
    """Yield a function that makes pipelines; their processes end with this."""
    with ExitStack() as stack:

        def make(
            *operators: str,
            partitions: int = 1,
            source: str = "",
            raw: Mapping[str, str] | None = None,
            servers: str | None = None,
        ) -> Pipeline:
            pipeline = Pipeline(
                servers or shared_servers(),
                folder,
                *operators,
                partitions=partitions,
                source=source,
                raw=raw,
            )
            stack.callback(pipeline.close)
            return pipeline

        yield make


def record(
    key: bytes | None,
    value: bytes | None,
    timestamp_ms: int,
    headers: Headers = (),
    partition: int = 0,
) -> Record:
    """A record to be produced."""
    return Record(key, value, timestamp_ms, headers, "", partition, None)


Content = tuple[bytes | None, bytes | None, int, Headers, int]


def contents(records: Iterable[Record]) -> list[Content]:
    """Return what records say, and in which partition; their offsets are left out."""
    return [(one.key, one.value, one.timestamp_ms, one.headers, one.partition) for one in records]


def readable_ends(clients: Clients, topic: str) -> dict[tuple[str, int], int]:
    """The offset behind the last record that can be read, by partition; markers do not count."""
    last = {record.partition: offset_of(record) for record in clients.consume_all(topic)}
    return {(topic, partition): offset + 1 for partition, offset in last.items()}


def reached(offsets: Offsets, wanted: Offsets) -> bool:
    """Whether offsets are at least these."""
    return all(offsets.get(at, 0) >= offset for at, offset in wanted.items())


def wait_until(
    holds: Callable[[], bool], what: str, running: Iterable[Sidecar], within_s: float = WITHIN_S
) -> None:
    """Wait until something holds; who must run and has ended fails the test."""
    sidecars = list(running)
    give_up_at = time.monotonic() + within_s
    while True:
        asked_at = time.monotonic()
        ended = [sidecar for sidecar in sidecars if sidecar.exit_code is not None]
        if holds():
            return
        if ended or time.monotonic() > give_up_at:
            logs = "\n".join(sidecar.log for sidecar in ended or sidecars)
            why = f"it ended with {ended[0].exit_code} before" if ended else "waited in vain for"
            message = f"{why} {what} ({within_s} s):\n{logs}"
            raise AssertionError(message)
        # A condition that costs much is asked seldom, or many tests at once would do little else.
        time.sleep(max(_ASK_AGAIN_S, (time.monotonic() - asked_at) * 2))


_ANY_RECORD = {
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": str((1 << 63) - 1),
    "max.message.bytes": str(4 << 20),
}


def variables_of(pipeline: Pipeline, settings: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a pipeline runs with these settings."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    given = {"bootstrap_servers": pipeline.servers, **settings}
    return plain | {f"HEADRACE_{name.upper()}": value for name, value in given.items()}
