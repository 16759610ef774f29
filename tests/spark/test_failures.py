"""A job that dies ends with a sentence and an exit code; on real brokers, and as text."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.contracts.dead_letter import read_dead
from headrace.contracts.decision import Reason
from headrace.contracts.errors import (
    HeadraceError,
    InstanceFenced,
    KafkaRefused,
    KafkaUnreachable,
    SettingsInvalid,
    SinkOfAnotherQuery,
    StateOfOtherOptions,
    StateUnavailable,
    TopicRefused,
)
from headrace.services.broker.embedded import EmbeddedBroker
from headrace.spark_jobs.cli.failure import error_of
from headrace.spark_jobs.jobs.again import ATTEMPTS
from tests.architecture.source import ROOT
from tests.kafka.clients import Clients
from tests.kafka.fixtures import OwnKafka
from tests.pages import installed, write_files
from tests.runtime.conftest import free_port
from tests.runtime.sidecar import wait_until
from tests.spark.driver import QUICK_JAVA
from tests.spark.test_again import HANGS_UP
from tests.spark.test_own_job import told

__all__ = ["free_port"]

OURS = ROOT / "src/headrace/spark_jobs"

IMPATIENT = """\
tasks: 1
shuffle-partitions: 1
reader:
  kafka.default.api.timeout.ms: "15000"
  kafka.request.timeout.ms: "15000"
  fetchOffset.numRetries: "1"
"""


class StockJob:
    """The README's own job, each time in a process of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        servers: str,
        python: tuple[str, str] = ("", ""),
        more: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Write its files, with a piece of its Python replaced, and more in its YAML."""
        self._environment = environment or {}
        write_files("spark_jobs/OWN_JOBS.md", folder)
        self._folder = folder
        self._replace("stock.yaml", "127.0.0.1:9092", servers, more=IMPATIENT + more)
        self._replace("stock.py", *python)

    def _replace(self, name: str, old: str, new: str, more: str = "") -> None:
        file = self._folder / name
        file.write_text(file.read_text().replace(old, new) + more)

    @contextmanager
    def running(self, *flags: str) -> Iterator[Popen[bytes]]:
        """It runs; what it says goes into a file."""
        command = ["headrace", "spark", "stock.yaml", *flags]
        with (
            (self._folder / "log").open("wb") as log,
            Popen(
                command,
                cwd=self._folder,
                env={**installed(), "JDK_JAVA_OPTIONS": QUICK_JAVA, **self._environment},
                stdout=log,
                stderr=log,
            ) as job,
        ):
            try:
                yield job
            finally:
                job.kill()

    def run(self) -> tuple[int, str]:
        """Run it to its end; its exit code, and its last line."""
        with self.running("--once") as job:
            return self.end_of(job)

    def end_of(self, job: Popen[bytes]) -> tuple[int, str]:
        """Wait until it has ended; its exit code, and its last line."""
        code = job.wait()
        return code, self.said()[-1]

    def said(self) -> list[str]:
        """Return its output, line by line."""
        return (self._folder / "log").read_text().splitlines()

    def has_committed(self) -> bool:
        """Whether a micro-batch is through."""
        return (self._folder / "checkpoints/stock/commits/0").exists()


@pytest.fixture
def broker(kafka_own: OwnKafka) -> EmbeddedBroker:
    """A broker with stock in it."""
    broker = kafka_own()
    clients = Clients(broker.bootstrap_servers)
    clients.make_topic("stock.cleaned", 1, {"retention.ms": "-1"})
    clients.produce("stock.cleaned", [told("north/bolt", 1, 1_000)])
    return broker


@pytest.mark.long("spark", why="it waits for a broker that is away")
def test_a_broker_that_is_not_there(tmp_path: Path, free_port: int) -> None:
    job = StockJob(tmp_path, servers=f"127.0.0.1:{free_port}")
    code, sentence = job.run()
    assert code == 3
    assert sentence.startswith(f"no broker answers at 127.0.0.1:{free_port}: ")


@pytest.mark.long("spark", why="it waits for Spark to ask thrice")
def test_an_option_that_is_none(tmp_path: Path, free_port: int) -> None:
    option = '  kafka.security.protocol: "nonsense"\n'
    job = StockJob(tmp_path, servers=f"127.0.0.1:{free_port}", more=option)
    code, sentence = job.run()
    assert code == 2
    assert sentence.startswith("Spark's Kafka client cannot be set up: Invalid value nonsense ")
    assert sentence.endswith("; see `servers`, `kafka`, `reader`")


@pytest.mark.long("spark", why="it runs a job on a broker of its own")
def test_records_on_which_a_function_raises_are_dead_letters(
    tmp_path: Path, broker: EmbeddedBroker
) -> None:
    clients = Clients(broker.bootstrap_servers)
    more = [told(f"south/nut{pieces}", pieces, 2_000) for pieces in (5, 9, 7, 9)]
    clients.produce("stock.cleaned", more)
    raising = '    assert told["pieces"] != 9\n    return told["product"]'
    job = StockJob(
        tmp_path,
        servers=broker.bootstrap_servers,
        python=('    return told["product"]', raising),
    )
    code, _ = job.run()
    assert code == 0
    totals = {one.key: one.value for one in clients.consume_all("stock.total")}
    assert totals == {b"bolt": b'{"pieces":1}', b"nut5": b'{"pieces":5}', b"nut7": b'{"pieces":7}'}
    dead = [read_dead(one) for one in clients.consume_all("stock.cleaned.dead")]
    assert [letter and letter.record.offset for letter in dead] == [2, 4]
    assert dead[0] is not None
    assert dead[0].record == more[1]._replace(topic="stock.cleaned", partition=0, offset=2)
    assert (dead[0].operator, dead[0].reason) == ("total", Reason.FAILED)
    assert dead[0].exception == "builtins.AssertionError"
    assert dead[0].detail.startswith("`product_of` raised AssertionError")
    said = [line for line in job.said() if "fails with AssertionError" in line]
    assert len(said) == 1
    assert f"{tmp_path}/stock.py, line " in said[0]


@pytest.mark.long("spark", why="its twin, whose records are dead letters, runs the same path")
def test_a_function_that_raises_stops_a_job_that_is_to_stop(
    tmp_path: Path, broker: EmbeddedBroker
) -> None:
    python = ('{"pieces": told["pieces"]}', '{"pieces": told["peaces"]}')
    job = StockJob(
        tmp_path, servers=broker.bootstrap_servers, python=python, more="on-failure: stop\n"
    )
    code, sentence = job.run()
    assert code == 8
    assert sentence.startswith("`product_of` raised KeyError: 'peaces' (")
    assert f"{tmp_path}/stock.py, line " in sentence
    assert "in the step `total`, at stock.cleaned/0 offset 0; mend it, or " in sentence


@pytest.mark.long("spark", why="it waits for a broker that is away")
def test_a_broker_that_goes_away_and_records_that_went_unread(
    tmp_path: Path, broker: EmbeddedBroker
) -> None:
    job = StockJob(tmp_path, servers=broker.bootstrap_servers)
    with job.running() as process:
        wait_until(lambda: job.has_committed() or process.poll() is not None, "a micro-batch", [])
        broker.kill()
        code, sentence = job.end_of(process)
    assert code == 3
    assert sentence.startswith(f"no broker answers at {broker.bootstrap_servers}: ")

    broker.start()
    clients = Clients(broker.bootstrap_servers)
    clients.produce("stock.cleaned", [told("north/bolt", pieces, 2_000) for pieces in range(9)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (deleted,) = admin.delete_records([TopicPartition("stock.cleaned", 0, 5)]).values()
    deleted.result()
    code, sentence = job.run()
    assert code == 2
    assert sentence.startswith("records are gone that this job had not read: ")
    assert "stock.cleaned-0; have the topic keep them" in sentence


@pytest.mark.long("spark", why="it runs a job to its end before it runs it again")
def test_a_topic_that_was_made_anew(tmp_path: Path, broker: EmbeddedBroker) -> None:
    job = StockJob(tmp_path, servers=broker.bootstrap_servers)
    assert job.run()[0] == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["stock.cleaned"])["stock.cleaned"].result()
    clients = Clients(broker.bootstrap_servers)
    wait_until(lambda: "stock.cleaned" not in clients.topics(), "the topic is gone", [])
    clients.make_topic("stock.cleaned", 1, {"retention.ms": "-1"})
    clients.produce("stock.cleaned", [told("north/bolt", pieces, 2_000) for pieces in range(9)])
    code, sentence = job.run()
    assert code == 4
    assert sentence.startswith("the topic `stock.cleaned` was made anew since this checkpoint was")


def hung_up(folder: Path, times: int) -> dict[str, str]:
    """Return an environment whose Python hangs up on Spark's driver, so many times."""
    python = folder / "python"
    python.write_text(f"""\
#!/bin/sh
# It takes the next file, and with it the right to hang up.
case "$*" in *transform_with_state_driver_worker*)
    for turn in "{folder}"/turn-*; do
        if rm "$turn" 2>/dev/null; then exec "{folder}/hangs-up"; fi
    done
esac
exec "{sys.executable}" "$@"
""")
    (folder / "hangs-up").write_text(HANGS_UP)
    for file in (python, folder / "hangs-up"):
        file.chmod(0o755)
    for turn in range(times):
        (folder / f"turn-{turn}").touch()
    return {"PYSPARK_PYTHON": str(python)}


@pytest.mark.long("spark", why="it runs a job twice; test_again.py starts a query again")
def test_a_python_that_does_not_connect_is_started_again_a_few_times(
    tmp_path: Path, broker: EmbeddedBroker
) -> None:
    never = hung_up(tmp_path, ATTEMPTS)
    job = StockJob(tmp_path, servers=broker.bootstrap_servers, environment=never)
    code, sentence = job.run()
    assert code == 7
    assert sentence.startswith("the Python process of `stock` did not connect to Spark, ")
    assert not any("Traceback" in line for line in job.said())
    assert not job.has_committed()

    hung_up(tmp_path, 2)
    code, _ = job.run()
    assert code == 0
    again = [line for line in job.said() if "the query is started again" in line]
    assert len(again) == 2
    totals = Clients(broker.bootstrap_servers).consume_all("stock.total")
    assert [(one.key, one.value) for one in totals] == [(b"bolt", b'{"pieces":1}')]


def test_an_error_of_ours_is_found_inside_of_sparks() -> None:
    text = (
        "[STREAM_FAILED] Query terminated: Traceback (most recent call last):\n"
        "headrace.contracts.errors.KafkaUnreachable: no broker\n\nThe above exception was ...\n"
        "headrace.contracts.errors.SinkOfAnotherQuery: `q` has written with another checkpoint\n"
        " at java"
    )
    ours = found(text)
    assert isinstance(ours, SinkOfAnotherQuery)
    assert str(ours) == "`q` has written with another checkpoint"
    assert isinstance(found("headrace.contracts.errors.KafkaUnreachable: x"), KafkaUnreachable)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("errors.TimeoutException: Timed out", KafkaUnreachable),
        ("errors.SaslAuthenticationException: Authentication failed", KafkaRefused),
        ("errors.TopicAuthorizationException: Not authorized: [a]", KafkaRefused),
    ],
)
def test_words_of_sparks_kafka_client_are_told(said: str, kind: type[HeadraceError]) -> None:
    ours = found(f"ExecutionException: org.apache.kafka.common.{said}\n\tat java.base/x")
    assert type(ours) is kind
    assert "broker:9092" in str(ours)


def test_a_time_that_sparks_source_cannot_hold_is_told() -> None:
    text = (
        "java.lang.ArithmeticException: long overflow\n\tat java.base/java.lang.Math\n"
        "\tat org.apache.spark.sql.kafka010.KafkaRecordToRowConverter.toRow(KafkaRecord.scala:1)"
    )
    ours = found(text)
    assert isinstance(ours, TopicRefused)
    assert "`max-future`" in str(ours)


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.ArithmeticException: long overflow",
        "java.lang.OutOfMemoryError: heap",
        "headrace.contracts.errors.Surprise: x",
        "org.apache.kafka.common.errors.RecordTooLargeException: 1 MB",
        f'Traceback:\n  File "{OURS}/write/kafka.py", line 1, in write\nKeyError: 1\n',
        'Traceback:\n  File "/x/site-packages/pandas/a.py", line 1, in read\nKeyError: 1\n',
    ],
)
def test_a_bug_keeps_its_traceback(text: str) -> None:
    assert found(text) is None


def test_executors_of_another_python_are_told() -> None:
    ours = found(
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in"
        " worker has different version: 3.12 than that in driver: 3.11, PySpark cannot run with"
    )
    assert isinstance(ours, SettingsInvalid)
    assert str(ours).startswith("the executors run Python 3.12 and this driver runs 3.11; give")


def found(text: str) -> HeadraceError | None:
    return error_of(RuntimeError(text), "broker:9092")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "terminated with exception: [STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA]",
            "a `group_by`, a window or a `join_on` came or went",
        ),
        (
            "There are [2] sources in the checkpoint offsets and now there are [3] sources request",
            "a job with 2 sources, and this one has 3: each input is one",
        ),
    ],
)
def test_a_checkpoint_of_another_query_is_told_as_that(text: str, said: str) -> None:
    ours = found(f"[STREAM_FAILED] Query [id = a, runId = b] {text}\n=== Streaming Query ===")
    assert type(ours) is StateOfOtherOptions
    assert said in str(ours)


@pytest.mark.parametrize(
    "text",
    [
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs",
        "Multiple streaming queries are concurrently using file:/checkpoint/offsets/7.",
        "io.delta.exceptions.ConcurrentTransactionException: [DELTA_CONCURRENT_TRANSACTION] Concu",
    ],
)
def test_two_drivers_of_one_checkpoint_are_told_as_that(text: str) -> None:
    ours = found(f"[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: {text}")
    assert type(ours) is InstanceFenced
    assert "another driver runs this query on the same checkpoint" in str(ours)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            ": org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: a",
            "cannot be used: Parent path is not a directory: a; see",
        ),
        ("java.io.IOException: No space left on device", "used: No space left on device; see"),
        (
            "java.io.FileNotFoundException: x\nCaused by: java.io.IOException: Mkdirs failed to cr",
            "cannot be used: Mkdirs failed to cr; see",
        ),
        (
            "ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
            "cannot be used: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found; see",
        ),
    ],
)
def test_a_folder_that_takes_no_files_is_told(text: str, said: str) -> None:
    ours = found(f"An error occurred while calling o1.parquet.\n{text}\n\tat org.apache")
    assert type(ours) is StateUnavailable
    assert said in str(ours)


def test_a_checkpoint_of_other_topics_is_told_as_that() -> None:
    spark = RuntimeError(
        "set the source option failOnDataLoss to false.\nReason: Partitions Set(a-0, a-1) have been"
        " deleted. SQLSTATE: XXKST"
    )
    ours = error_of(spark, "here:9092")
    assert isinstance(ours, TopicRefused)
    assert "has read a-0, a-1, and no input has that any more" in str(ours)
