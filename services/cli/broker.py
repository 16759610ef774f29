"""`headrace broker`: a real Kafka broker on this machine, until it is stopped."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console

from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.broker.jars import KafkaVersion, kafka_version
from headrace.services.broker.ports import check_free
from headrace.services.broker.prepare import prepare

_PORT_MAX = 65_535


def broker(
    *,
    port: Annotated[int, Parameter(validator=Number(gte=1, lte=_PORT_MAX))] = 9_092,
    data: Path | None = None,
    kafka: KafkaVersion | None = None,
) -> None:
    """Run a real Kafka broker on this machine, for this machine, until Ctrl-C.

    Args:
        port: The port on 127.0.0.1 that it listens on.
        data: The folder of its data; by default it keeps none when it stops.
        kafka: The version of Kafka; by default HEADRACE_KAFKA_VERSION, or the newest.
    """
    version = kafka or kafka_version()
    console = Console(highlight=False)
    check_free(port)
    # Being told to stop is no error, whether by Ctrl-C or by whatever started this; and a shell
    # that starts it in the background has Ctrl-C ignored.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.default_int_handler)
    with ExitStack() as stack:
        temporary = TemporaryDirectory(prefix="headrace-broker-", ignore_cleanup_errors=True)
        folder = data or Path(stack.enter_context(temporary))
        try:
            _run(folder, port, version, console, stack)
        except KeyboardInterrupt:
            console.print("stopping")


def _run(
    folder: Path, port: int, version: KafkaVersion, console: Console, stack: ExitStack
) -> None:
    with console.status("starting") as status:
        prepare(lambda step: status.update(f"preparing Kafka {version}, once: {step}"), version)
        status.update("starting")
        embedded = EmbeddedBroker(folder, port=port, version=version)
        stack.callback(embedded.stop)
        embedded.start()
    console.print(
        f"Kafka {version} listens at {embedded.bootstrap_servers}; its data are in {folder}."
        " Ctrl-C stops it.",
        soft_wrap=True,
    )
    embedded.brokers[0].wait()
