"""Producers of others, each told the same: which records, how they are packed and made to count.

A transactional writer writes all of it once more, and aborts that.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from headrace.contracts.record import Record
from headrace.services.broker.jars import cache_folder, kafka_jars
from headrace.services.broker.java import find_java
from tests.kafka.clients import fresh_name

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_GO = Path(__file__).with_name("go")
_SERIALIZER = "org.apache.kafka.common.serialization.ByteArraySerializer"
_LINGER_MS = "20"
"""Or each record would be a batch by itself."""
_PATIENCE_S = 60.0


class Manner(NamedTuple):
    """How records are written."""

    codec: str
    kind: str
    """plain, idempotent or transactional."""


class Target(NamedTuple):
    """Where to."""

    servers: str
    topic: str


Told = Mapping[Manner, Sequence[Record]]
"""The records that each manner writes."""
Write = Callable[[Target, Told], None]


class Writer(NamedTuple):
    """One of them."""

    write: Write
    kinds: tuple[str, ...] = ("plain", "idempotent", "transactional")
    says_all: bool = True
    """It can say timestamps, bytes that are no text, and headers of each record."""


def by_librdkafka(target: Target, told: Told) -> None:
    """confluent-kafka's producer, as Python, C++, .NET and more have it."""
    for manner, records in told.items():
        _by_librdkafka(target, manner, records)


def _by_librdkafka(target: Target, manner: Manner, records: Sequence[Record]) -> None:
    options: dict[str, str | int | float | bool] = {
        "bootstrap.servers": target.servers,
        "compression.type": manner.codec,
        "enable.idempotence": manner.kind != "plain",
        "linger.ms": _LINGER_MS,
    }
    if manner.kind == "transactional":
        options["transactional.id"] = fresh_name("librdkafka")
    producer = Producer(options)
    if manner.kind != "transactional":
        _produce(producer, target.topic, records)
        return
    producer.init_transactions(_PATIENCE_S)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        _produce(producer, target.topic, records)
        end(_PATIENCE_S)


def _produce(producer: Producer, topic: str, records: Sequence[Record]) -> None:
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            record.partition,
            timestamp=record.timestamp_ms,
            headers=[*record.headers],
        )
    assert producer.flush(_PATIENCE_S) == 0


def by_java(target: Target, told: Told) -> None:
    """Kafka's own client, from the jars of the broker."""
    with _java() as packages:
        for manner, records in told.items():
            _by_java(packages, target, manner, records)


def _by_java(packages: Any, target: Target, manner: Manner, records: Sequence[Record]) -> None:
    options = packages.java.util.HashMap()
    options.put("bootstrap.servers", target.servers)
    options.put("compression.type", manner.codec)
    options.put("enable.idempotence", str(manner.kind != "plain").lower())
    options.put("linger.ms", _LINGER_MS)
    options.put("key.serializer", _SERIALIZER)
    options.put("value.serializer", _SERIALIZER)
    if manner.kind == "transactional":
        options.put("transactional.id", fresh_name("java"))
    producer = packages.org.apache.kafka.clients.producer.KafkaProducer(options)
    if manner.kind == "transactional":
        producer.initTransactions()
        for end in (producer.commitTransaction, producer.abortTransaction):
            producer.beginTransaction()
            _send(packages, producer, target.topic, records)
            end()
    else:
        _send(packages, producer, target.topic, records)
    producer.close()


def _send(packages: Any, producer: Any, topic: str, records: Sequence[Record]) -> None:
    kafka = packages.org.apache.kafka
    for record in records:
        headers = packages.java.util.ArrayList()
        for name, value in record.headers:
            headers.add(kafka.common.header.internals.RecordHeader(name, value))
        producer.send(
            kafka.clients.producer.ProducerRecord(
                topic, record.partition, record.timestamp_ms, record.key, record.value, headers
            )
        )
    producer.flush()


@contextmanager
def _java() -> Iterator[Any]:
    """A Java with Kafka's client in it, and the packages in there."""
    port, process = launch_gateway(
        classpath=f"{kafka_jars()}/*",
        java_path=find_java().path,
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        with process:
            process.terminate()


def by_go(target: Target, told: Told) -> None:
    """franz-go, by the program in `go/`."""
    for manner, records in told.items():
        _by_go(target, manner, records)


def _by_go(target: Target, manner: Manner, records: Sequence[Record]) -> None:
    command = [str(_go_program()), *target, *manner, fresh_name("go")]
    lines = "".join(f"{_line(record)}\n" for record in records)
    with TemporaryDirectory() as folder:
        file = Path(folder, "records")
        file.write_text(lines)
        with file.open() as stdin:
            subprocess.run(command, stdin=stdin, check=True, timeout=_PATIENCE_S)


def _line(record: Record) -> str:
    fields = [str(record.partition), str(record.timestamp_ms), _text(record.key)]
    fields.append(_text(record.value))
    for name, value in record.headers:
        fields += [name, _text(value)]
    return "\t".join(fields)


def _text(some: bytes | None) -> str:
    return "-" if some is None else base64.b64encode(some).decode()


@cache
def _go_program() -> Path:
    """The program, built once; Go keeps what it has fetched for that."""
    sources = b"".join(file.read_bytes() for file in sorted(_GO.iterdir()))
    program = cache_folder() / f"go-writer-{hashlib.sha256(sources).hexdigest()[:12]}"
    if not program.exists():
        _here("go")
        with TemporaryDirectory(dir=program.parent) as folder:
            built = Path(folder, program.name)
            command = ["go", "build", "-o", str(built), "."]
            # A Go that is too old would fetch a newer one.
            local = os.environ | {"GOTOOLCHAIN": "local"}
            done = subprocess.run(
                command, cwd=_GO, env=local, capture_output=True, text=True, check=False
            )
            if done.returncode:
                pytest.skip(f"not run: go cannot build it here: {done.stderr.strip()[-300:]}")
            built.rename(program)
    return program


def by_kcat(target: Target, told: Told) -> None:
    """kcat, which reads lines: no times, and the same headers for all."""
    _here("kcat")
    for manner, records in told.items():
        _by_kcat(target, manner, records)


def _by_kcat(target: Target, manner: Manner, records: Sequence[Record]) -> None:
    command = ["kcat", "-P", "-b", target.servers, "-t", target.topic, "-z", manner.codec]
    command += ["-p", str(records[0].partition), "-K", "\t", "-Z"]
    command += ["-X", f"enable.idempotence={str(manner.kind != 'plain').lower()}"]
    for name, value in records[0].headers:
        command += ["-H", f"{name}={(value or b'').decode()}"]
    lines = [(record.key or b"") + b"\t" + (record.value or b"") for record in records]
    subprocess.run(command, input=b"\n".join(lines), check=True, timeout=_PATIENCE_S)


def _here(program: str) -> None:
    """Say so in the summary where a program is missing; nobody needs it for anything else."""
    if shutil.which(program) is None:
        pytest.skip(f"not run: {program} is not installed here")


WRITERS = {
    "librdkafka": Writer(by_librdkafka),
    "java": Writer(by_java),
    "go": Writer(by_go),
    "kcat": Writer(by_kcat, kinds=("plain", "idempotent"), says_all=False),
}
