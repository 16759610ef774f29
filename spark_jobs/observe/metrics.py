"""The metrics of one query: Spark's own of each micro-batch, and those of our steps.

Labels are bounded: inputs, partitions, steps and the words of their counters, but no keys.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EADDRINUSE
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, Gauge, generate_latest, start_http_server

from headrace.contracts.errors import PortTaken, SettingsInvalid
from headrace.contracts.servers import is_resolvable
from headrace.spark_jobs.observe.waits import Waits
from headrace.spark_jobs.shapes import COUNT, FAILED, LOWEST, SAID
from headrace.spark_jobs.versioned.state import VERDICTS
from headrace.spark_jobs.write.kafka import Written
from headrace.spark_jobs.write.transaction import Note

if TYPE_CHECKING:
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

LOOPBACK = "127.0.0.1"
_TAKEN, _DROPPED = "taken", "dropped:"
_log = logging.getLogger(__name__)


class Address(NamedTuple):
    """Where a page is served."""

    port: int
    host: str = LOOPBACK


class Metrics:
    """The metrics page of one query."""

    def __init__(self, query: str, clock: Callable[[], float]) -> None:
        """Begin without figures; the first batch brings all that the steps have counted before.

        `clock` tells seconds since 1970.
        """
        self.registry = CollectorRegistry()
        self._query = query
        self._gauges: dict[str, Gauge] = {}
        self._standing: dict[tuple[str, int], int] = {}
        """The last value of each counter of each task."""
        self._written: defaultdict[str, int] = defaultdict(int)
        self._failed = Counter[tuple[str, str]]()
        self._waits = Waits(clock)
        self._said: set[str] = set()
        """The kinds of failures that were logged."""

    @contextmanager
    def served(self, at: Address | None) -> Iterator[None]:
        """Serve the page until the block ends, if there is an address."""
        if at is None:
            yield
            return
        server, thread = self._listen(*at)
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def _listen(self, port: int, host: str) -> tuple[WSGIServer, Thread]:
        if not is_resolvable(host):
            message = f"`{host}` is no name of a host; give `--metrics-host` one, such as 0.0.0.0"
            raise SettingsInvalid(message)
        try:
            return start_http_server(port, addr=host, registry=self.registry)
        except OSError as problem:
            if problem.errno == EADDRINUSE:
                message = f"port {port} of {host} is taken; give `--metrics-port` another one"
                raise PortTaken(message) from problem
            message = (
                f"nobody can listen at port {port} of {host} ({problem.strerror}); give"
                " `--metrics-host` and `--metrics-port` an address of this machine"
            )
            raise SettingsInvalid(message) from problem

    def page(self) -> str:
        """Return the page as Prometheus reads it."""
        return generate_latest(self.registry).decode()

    def set(self, name: str, help_text: str, value: float, **labels: str) -> None:
        """Set one series."""
        gauge = self._gauges.get(name)
        if gauge is None:
            names = ("query", *labels)
            gauge = Gauge(f"headrace_spark_{name}", help_text, names, registry=self.registry)
            self._gauges[name] = gauge
        gauge.labels(self._query, *labels.values()).set(value)

    def note(self, batch_id: int, written: Written) -> None:
        """Take the outcome of a micro-batch."""
        for note in written.notes:
            self._take(note)
        self._written["written"] += written.records
        self._written["replayed"] += written.replayed
        for name, records in self._written.items():
            self.set("records", "Records sent to Kafka by this driver.", records, outcome=name)
        self.set("batch", "The last micro-batch that was written.", batch_id)
        self._show_steps()
        self._show_lowest()

    def say_who_is_waited_for(self) -> None:
        """Log which partition records wait for, if they have waited for long."""
        sentence = self._waits.sentence()
        if sentence is not None:
            _log.warning("%s: %s", self._query, sentence)

    def _take(self, note: Note) -> None:
        if note.note == SAID:
            _log.warning("%s: %s", self._query, note.reason)
        elif note.note == FAILED and note.reason is not None:
            self._take_failed(note.reason, note.added)
        elif note.note == COUNT and note.reason is not None and note.number is not None:
            self._standing[note.reason, note.task] = note.number
        elif note.note == LOWEST:
            self._waits.take(note)
        else:
            self._written[note.note] += note.added

    def _take_failed(self, kind: str, records: int) -> None:
        step, exception, line = json.loads(kind)
        if kind not in self._said:
            self._said.add(kind)
            _log.warning(
                "%s: the step `%s` fails with %s%s; such records are dead letters, which say more,"
                " and are counted from now on without a word",
                *(
                    self._query,
                    step,
                    exception.removeprefix("builtins."),
                    f" ({line})" if line else "",
                ),
            )
        self._failed[step, exception] += records
        self.set(
            "failed_records",
            "Records on which a step failed under this driver; they are dead letters.",
            self._failed[step, exception],
            step=step,
            exception=exception,
        )

    def _show_lowest(self) -> None:
        waits = self._waits
        for name in ("held_back_records", "held_back_since_seconds", "lowest_progress_seconds"):
            if name in self._gauges:
                # Another partition may be the lowest by now, and the old series ends.
                self._gauges[name].clear()
        if waits.lowest is None:
            return
        topic, partition, progress_ms = waits.lowest
        labels = {"topic": topic, "partition": partition}
        text = "Records that wait for the partition with the lowest progress."
        self.set("held_back_records", text, waits.held, **labels)
        text = "Since when that partition is the lowest and has not moved, by this machine's clock."
        self.set("held_back_since_seconds", text, waits.since_s, **labels)
        if progress_ms is not None:
            text = "The lowest progress of all partitions that are not idle: a time of events."
            self.set("lowest_progress_seconds", text, progress_ms / 1_000, **labels)

    def _show_steps(self) -> None:
        steps: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        for (name, _task), number in self._standing.items():
            step, _, counter = name.partition(":")
            steps[step][counter] += number
        for step, counters in steps.items():
            for counter, number in counters.items():
                self.set(
                    "step_records",
                    "What became of records at a step, since its checkpoint began.",
                    number,
                    step=step,
                    verdict=counter,
                )
            if _TAKEN in counters:
                final = sum(
                    number
                    for counter, number in counters.items()
                    if counter in VERDICTS or counter.startswith(_DROPPED)
                )
                held = counters[_TAKEN] - final
                self.set("step_held", "Records that wait at a step.", held, step=step)
