"""The page's table with a history, as its reader keeps it: from a topic, by one command again."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import cast

import pytest
import yaml
from pyspark.sql import SparkSession

import headrace as hr
from headrace.contracts.errors import JobInvalid
from headrace.contracts.progress import LAYOUT, CleanedBy, Progress, cleaned_by_row, progress_row
from headrace.contracts.record import Record
from headrace.contracts.topics import cleaned_topic, progress_topic
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.cli.query_job import described
from headrace.spark_jobs.jobs.run import JOBS, Job, find_job, is_of_one_task, make_output, prepare
from headrace.spark_jobs.queries.compiled import QueryJob
from tests.kafka.clients import Clients, fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.pages import installed, named_files
from tests.runtime.sidecar import record
from tests.spark.driver import QUICK_JAVA
from tests.spark.tables import live_rows

FILE = "customers-history.yaml"


class Customers:
    """A topic as a sidecar would have cleaned it, and the page's job over it."""

    def __init__(self, clients: Clients, folder: Path) -> None:
        self.clients = clients
        self.folder = folder
        name = fresh_name("customers")
        self.topic = f"{name}.cleaned"
        text = named_files("docs/spark.md")[FILE]
        text = text.replace("customers.cleaned", self.topic).replace(
            "127.0.0.1:9092", clients.servers
        )
        (folder / FILE).write_text(text.replace("customers-history", f"{name}-history"))
        for spec in (cleaned_topic(self.topic), progress_topic(self.topic)):
            clients.make_topic(spec.name, 1, spec.settings())
        self._say(cleaned_by_row(CleanedBy(name, LAYOUT, "source", {"operators": []})))

    def send(self, *records: Record) -> None:
        """Records, and that all is read up to the last of them."""
        self.clients.produce(self.topic, list(records))
        last = self.clients.consume_all(self.topic)[-1].offset
        self._say(progress_row(Progress(0, 1, 1, "raw", 0, last)))

    def _say(self, row: tuple[bytes, bytes]) -> None:
        name = progress_topic(self.topic).name
        self.clients.produce(name, [Record(*row, 1, (), name, 0, None)])

    def replace(self, old: str, new: str) -> None:
        """Write a piece of the job otherwise."""
        file = self.folder / FILE
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def start(self) -> subprocess.CompletedProcess[str]:
        """Run the job over what is there."""
        command = ["headrace", "spark", FILE, "--once", "--log", "spark.log"]
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**installed(), "JDK_JAVA_OPTIONS": QUICK_JAVA},
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self) -> None:
        """Run the job to its end."""
        done = self.start()
        assert done.returncode == 0, done.stderr

    @property
    def rows(self) -> list[tuple[object, ...]]:
        """Key, seconds from when and until when, and segment of each row."""
        found: list[tuple[object, ...]] = []
        for row in live_rows(self.folder / "tables" / "customers"):
            assert row["deleted"] == (row["segment"] is None)
            times = (row[name] for name in ("valid_from", "valid_to"))
            seconds = [
                None if one is None else one.replace(tzinfo=UTC).timestamp() for one in times
            ]
            found.append((row["key"], *seconds, row["segment"]))
        return sorted(found, key=lambda row: (str(row[0]), row[1]))


def customer(key: bytes, at_s: int, segment: str | None) -> Record:
    value = None if segment is None else b'{"name":"N","segment":"%s"}' % segment.encode()
    return record(key, value, at_s * 1_000)


TABLE = hr.table("a", "segment STRING, cents BIGINT", retention="1h")
OTHER = hr.table("b", "name STRING")
KEPT = hr.delta("rows", mode="scd2")
SAID = {"name": "n", "servers": "s:1", "checkpoint": "checkpoint"}


def test_results_of_joined_and_grouped_tables_follow_each_other_in_order() -> None:
    grouped = TABLE.group_by("segment").agg(hr.count())
    joined = TABLE.join(OTHER)
    on = TABLE.join_on(OTHER, "segment")
    windows = hr.stream("c", "x STRING").group_by("x", hr.window("1h")).agg(hr.count())
    looked_up = hr.stream("c", "x STRING").join_as_of(TABLE)
    assert all(QueryJob(query).in_order for query in (grouped, joined, on))
    assert not any(QueryJob(query).in_order for query in (TABLE, windows, looked_up))


def test_rows_of_a_key_are_of_one_task_unless_a_stream_meets_by_a_column() -> None:
    stream, other = hr.stream("c", "x STRING"), hr.stream("d", "y STRING")
    by_key = stream.join_as_of(TABLE), stream.join_within(other, within="1h")
    by_column = stream.join_as_of(TABLE, on="x"), stream.join_within(other, within="1h", on="x")
    windows = by_column[0].group_by("x", hr.window("1h")).agg(hr.count())
    one = (*by_key, windows, TABLE, TABLE.join_on(OTHER, "segment"))
    assert [QueryJob(query).of_one_task for query in one] == [True] * 5
    assert [QueryJob(query).of_one_task for query in by_column] == [False] * 2
    assert is_of_one_task(cast("Job", QueryJob(TABLE)))
    assert not is_of_one_task(cast("Job", object())), "a job of the user's may change keys"
    assert all(map(is_of_one_task, map(find_job, JOBS)))


def test_a_job_that_is_no_query_keeps_no_history(tmp_path: Path) -> None:
    inputs = {"limits": {"topic": "limits"}, "counts": {"topic": "counts"}}
    sink = {"delta": {"folder": "rows", "mode": "scd2"}}
    said = {"job": "count-alerts", "inputs": inputs, "retention": "1h", "sink": sink, **SAID}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(said))
    why = r"`mode: scd2` takes a query, .* `count-alerts` is none"
    with pytest.raises(JobInvalid, match=rf"job\.yaml:\d+:\d+: .*{why}"):
        load_job(file)
    # A job in Python comes without a file.
    file.write_text(yaml.safe_dump(said | {"sink": {"delta": {"folder": "rows"}}}))
    job, config = load_job(file)
    assert config.sink.delta is not None
    delta = config.sink.delta.model_copy(update={"mode": "scd2"})
    config = config.model_copy(update={"sink": config.sink.model_copy(update={"delta": delta})})
    with pytest.raises(JobInvalid, match=why):
        make_output(job, config, lambda _batch, _written: None)


def test_a_column_with_the_name_of_a_time_is_refused_where_only_spark_knows_it(
    spark: SparkSession,
) -> None:
    query = hr.table("a", "times STRUCT<valid_to: BIGINT>").select("times.valid_to")
    job, config = described(query, to=KEPT, **SAID)
    with pytest.raises(JobInvalid, match="rows with a field `valid_to`, and a table has a column"):
        prepare(spark, cast("Job", job), config)
    job, config = described(query, to=hr.delta("rows"), **SAID)
    prepare(spark, cast("Job", job), config)


@pytest.mark.long("spark", why="it runs a job three times")
def test_the_job_of_the_page_keeps_versions_that_come_late(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    customers = Customers(kafka.clients, tmp_path)

    def taken(*records: tuple[bytes, int, str | None]) -> Sequence[tuple[object, ...]]:
        customers.send(*(customer(*one) for one in records))
        customers.run()
        return customers.rows

    first = taken((b"ann", 10, "gold"), (b"ann", 12, None), (b"bob", 10, "tin"), (b"cem", 15, None))
    assert first == [("ann", 10, 12, "gold"), ("bob", 10, None, "tin"), ("cem", 15, 15, None)]
    second = taken(
        *((b"ann", 11, "silver"), (b"bob", 10, "iron"), (b"bob", 20, "tin"), (b"bob", 30, "gold")),
        *((b"cem", 14, "tin"), (b"dan", 1, "gold"), (b"bob", 5, "wood")),
    )
    assert second == [
        *(("ann", 10, 11, "gold"), ("ann", 11, 12, "silver")),
        *(("bob", 5, 10, "wood"), ("bob", 10, 20, "iron"), ("bob", 20, 30, "tin")),
        *(("bob", 30, None, "gold"), ("cem", 14, 15, "tin"), ("dan", 1, None, "gold")),
    ]
    third = taken((b"bob", 25, None), (b"ann", 13, "gold"), (b"dan", 1, None))
    assert third == [
        *(("ann", 10, 11, "gold"), ("ann", 11, 12, "silver"), ("ann", 13, None, "gold")),
        *(("bob", 5, 10, "wood"), ("bob", 10, 20, "iron"), ("bob", 20, 25, "tin")),
        *(("bob", 30, None, "gold"), ("cem", 14, 15, "tin"), ("dan", 1, 1, None)),
    ]
    customers.run()
    assert customers.rows == third, "without new records nothing changes"
