"""One list of options lets a job read and write where a password and TLS are asked for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import headrace as hr
from headrace.contracts.errors import JobInvalid
from headrace.contracts.record import Record
from headrace.contracts.topics import cleaned_topic
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.cli.query_job import described
from headrace.spark_jobs.jobs.access import KafkaAccess, access_of
from headrace.spark_jobs.jobs.config import reader_of, writer_of
from headrace.spark_jobs.read.source import Source
from headrace.spark_jobs.write.producer import client_problem
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import OwnKafka
from tests.pages import installed
from tests.runtime.certificates import Authority
from tests.runtime.secured import PASSWORD, secured_broker

JOB = """\
query: SELECT customer, sum(cents) AS cents FROM bought GROUP BY customer
name: NAME
servers: SERVERS
checkpoint: checkpoint
tables:
  bought: {topic: NAME-bought, schema: "customer STRING, cents BIGINT", pipeline: null}
sink: {kafka: {topic: NAME-sums, partitions: 1}}
tasks: 1
shuffle-partitions: 1
spark: {spark.ui.enabled: "false"}
kafka:
  security-protocol: SASL_SSL
  sasl-mechanism: SCRAM-SHA-512
  sasl-username: ada
  sasl-password: ${PASSWORD}
  ssl-ca-file: CA
  ssl-certificate-file: OWN
  ssl-key-file: OWN
"""
LOGIN = {
    "security-protocol": "SASL_SSL",
    "sasl-mechanism": "PLAIN",
    "sasl-username": "ada",
    "sasl-password": 'a "word\\',
}


def job_file(folder: Path, old: str = "", new: str = "") -> Path:
    """Write a job's file, with a piece of it replaced, beside its certificates."""
    authority = Authority(folder, "authority")
    text = JOB.replace("OWN", str(authority.issue("ada"))).replace("CA", str(authority.file))
    file = folder / "job.yaml"
    file.write_text(text.replace("SERVERS", "here:9092").replace(old, new))
    return file


def test_one_list_is_the_options_of_both_clients() -> None:
    access = access_of(LOGIN)
    assert access.for_reader() == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            ' username="ada" password="a \\"word\\\\";'
        ),
    }
    assert access.for_writer() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": 'a "word\\',
    }
    careless = KafkaAccess(security_protocol="SSL", ssl_check_hostname=False)
    assert careless.for_reader()["kafka.ssl.endpoint.identification.algorithm"] == ""
    assert careless.for_writer()["ssl.endpoint.identification.algorithm"] == "none"
    assert client_problem(careless.for_writer()) is None


def test_certificates_travel_with_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", PASSWORD)
    _, config = load_job(job_file(tmp_path))
    read, written = reader_of(config), writer_of(config)
    assert read["kafka.ssl.keystore.key"] == written["ssl.key.pem"]
    assert read["kafka.ssl.keystore.certificate.chain"] == written["ssl.certificate.pem"]
    assert read["kafka.ssl.truststore.certificates"] == written["ssl.ca.pem"]
    assert "PRIVATE" not in written["ssl.certificate.pem"]
    assert client_problem(written) is None
    assert PASSWORD not in repr(config)


def test_no_broker_holds_back_what_a_task_asks_behind_a_fetch() -> None:
    name = "kafka.fetch.max.wait.ms"
    assert int(Source("here:1").described()[name]) < 10
    assert Source("here:1", {name: "500"}).described()[name] == "500"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("SASL_SSL", "SSL", "job.yaml:11:1: kafka: `sasl-mechanism` does nothing without SASL"),
        ("  sasl-username: ada\n", "", "kafka: `sasl-username` is missing; SASL_SSL needs it"),
        ("SCRAM-SHA-512", "SCRAM", ":13:3: kafka.sasl-mechanism: `SCRAM` is none of the choices"),
        ("sasl-username", "sasl-user", "`sasl-user` is not known here; did you mean"),
        ("authority.pem", "none.pem", "`ssl-ca-file` cannot be read: "),
        ("authority.pem", "job.yaml", "has no certificate in PEM"),
        ("sasl-password: ${PASSWORD}", "sasl-password: 5", "this secret is not text; write it in"),
        (
            "tasks: 1\n",
            "reader: {kafka.security.protocol: SSL}\n",
            "`kafka.security.protocol` is what `kafka` says",
        ),
        ("tasks: 1\n", "writer: {sasl.username: bob}\n", "`sasl.username` is what `kafka` says"),
    ],
)
def test_an_access_that_cannot_work_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    monkeypatch.setenv("PASSWORD", PASSWORD)
    with pytest.raises(JobInvalid) as refused:
        load_job(job_file(tmp_path, old, new))
    assert said in str(refused.value)
    assert PASSWORD not in str(refused.value)


QUERY = """
query: SELECT key, name FROM customers
name: kept
servers: here:9092
checkpoint: state
tables: {customers: {topic: customers, schema: name STRING}}
sink: {kafka: {topic: kept}}
"""
PLAIN = {"sasl-mechanism": "PLAIN", "sasl-username": "ann", "sasl-password": "secret"}


@pytest.mark.parametrize(
    "login", [{"security-protocol": "SSL"}, {"security-protocol": "SASL_PLAINTEXT", **PLAIN}]
)
def test_a_query_logs_in_as_any_job_does(tmp_path: Path, login: dict[str, str]) -> None:
    file = tmp_path / "query.yaml"
    file.write_text(QUERY + yaml.safe_dump({"kafka": login}))
    _, config = load_job(file)
    assert writer_of(config) == access_of(login).for_writer()


def test_python_takes_the_same_names() -> None:
    bought = hr.table("bought", "cents BIGINT", pipeline=None)
    said: dict[str, Any] = {"name": "x", "servers": "a:1", "checkpoint": "c", "kafka": LOGIN}
    _, config = described(bought, to=hr.console(), **said)
    assert config.kafka == access_of(LOGIN)
    with pytest.raises(JobInvalid, match=r"`kafka.sasl-user`: .*did you mean `sasl-username`"):
        access_of({"sasl-user": "ada"})


@pytest.mark.long("spark", why="a job and a broker of its own; what both are told is tested above")
def test_a_job_reads_and_writes_over_tls_with_a_password(
    kafka_own: OwnKafka, tmp_path: Path
) -> None:
    secured = secured_broker(kafka_own, tmp_path)
    name = fresh_name("sums")
    topic = f"{name}-bought"
    secured.clients.make_topic(topic, 1, cleaned_topic(topic).settings())
    values = [b'{"customer":"c","cents":2}', b'{"customer":"c","cents":3}', b'{"cents":"none"}']
    records = [Record(b"%d" % n, value, n, (), "", 0, None) for n, value in enumerate(values, 1)]
    secured.clients.produce(topic, records)
    file = tmp_path / "job.yaml"
    said = {
        "NAME": name,
        "SERVERS": secured.broker.bootstrap_servers,
        "CA": str(secured.authority.file),
        "OWN": str(secured.authority.issue("ada")),
    }
    text = JOB
    for word, value in said.items():
        text = text.replace(word, value)
    file.write_text(text)
    command = ["headrace", "spark", str(file), "--once", "--log", "spark.log"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**installed(), "PASSWORD": PASSWORD},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(one.value or b"") for one in secured.clients.consume_all(f"{name}-sums")]
    assert rows[-1] == {"customer": "c", "cents": 5}
    (dead,) = secured.clients.consume_all(f"{topic}.dead")
    assert dead.key == b"3"
