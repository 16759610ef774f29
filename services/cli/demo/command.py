"""The command: everything in turn, and then what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory, gettempdir
from typing import NamedTuple

from rich.console import Console

from headrace.contracts.errors import SettingsInvalid
from headrace.contracts.record import Record
from headrace.services.cli.demo import clicks, orders
from headrace.services.cli.demo.counted import Journeys, counts, fate, read_journeys
from headrace.services.cli.demo.page import Shown, page
from headrace.services.cli.demo.priced import in_time_order, read_alerts, read_priced
from headrace.services.cli.demo.report import (
    alerts_table,
    counts_table,
    journeys_table,
    priced_table,
    sum_table,
    totals_table,
)
from headrace.services.cli.demo.running import (
    broker,
    forget_settings,
    has_spark,
    run_jobs,
    sidecar,
    wait_until,
)
from headrace.services.kafka.records import (
    committed_offsets,
    make_topic,
    read_records,
    write_records,
)
from headrace.services.settings import Settings

PAGE = Path(gettempdir(), "headrace-demo.html")


class Streams(NamedTuple):
    """The records that the demo sends, the same each time."""

    clicks: list[Record]
    orders: list[Record]
    prices: list[Record]


def demo(*, page_file: Path = PAGE) -> None:
    """Run pipelines on a real broker, kill a sidecar half-way, and join behind them with Spark.

    Args:
        page_file: The file for the page with the plots.
    """
    _check_writable(page_file)
    forget_settings()
    console = Console(highlight=False)
    streams = made_streams()
    with TemporaryDirectory(prefix="headrace-demo-") as name:
        folder = Path(name)
        with broker(folder, console) as settings:
            _tell(console, len(streams.clicks))
            with console.status("sidecars at work"):
                clean(streams, settings, folder)
            journeys = read_journeys(settings)
            final = counts(read_records(settings, clicks.CLEANED))
            console.print(journeys_table(streams.clicks, journeys), counts_table(final))
            console.print(sum_table(streams.clicks, journeys))
            if not has_spark():
                sentence = "Spark is not here; pip install 'headrace[spark]' shows the rest."
                console.print(sentence, markup=False)
                return
            _tell_of_spark(console, streams)
            with console.status("Spark at work, three jobs"):
                join(settings, folder)
            shown = Shown(
                _ends(streams.clicks, journeys),
                final,
                read_alerts(settings),
                in_time_order(streams.prices),
                read_priced(settings),
            )
    console.print(priced_table(shown.priced), totals_table(shown.priced))
    console.print(alerts_table(shown.alerts))
    page_file.write_text(page(shown), "utf-8")
    console.print(f"All of it as a page: {page_file.absolute().as_uri()}", soft_wrap=True)


def _check_writable(page_file: Path) -> None:
    """Refuse a file that could not be written behind all the work."""
    try:
        is_new = not page_file.exists()
        page_file.open("ab").close()
        if is_new:
            page_file.unlink()
    except OSError as error:
        message = (
            f"`{page_file}` cannot be written ({error.strerror}); name another file with"
            " --page-file"
        )
        raise SettingsInvalid(message) from error


def made_streams() -> Streams:
    """The records of the demo."""
    # The same streams each time; nobody's secret depends on them.
    first, second, third = (Random(clicks.SEED + number) for number in range(3))  # noqa: S311
    return Streams(list(clicks.clicks(first)), orders.orders(second), orders.prices(third))


def clean(streams: Streams, settings: Settings, folder: Path) -> None:
    """Three pipelines; the clicks' sidecar is killed half-way, and a new one goes on."""
    for topic in (clicks.TOPIC, orders.ORDERS, orders.PRICES):
        make_topic(settings, topic, 1)
    files = dict(_write(folder, {clicks.PIPELINE: clicks.PIPELINE_TEXT, **orders.PIPELINES}))
    write_records(settings, streams.orders)
    write_records(settings, streams.prices)
    half = len(streams.clicks) // 2
    write_records(settings, streams.clicks[:half])
    with ExitStack() as others:
        for name in orders.PIPELINES:
            others.enter_context(sidecar(files[name], settings))
        with sidecar(files[clicks.PIPELINE], settings) as first:
            wait_until(lambda: _committed(settings, clicks.PIPELINE, clicks.TOPIC) > 0, first)
            write_records(settings, streams.clicks[half:])
            first.kill()
        with sidecar(files[clicks.PIPELINE], settings) as second:
            wait_until(
                lambda: (
                    _committed(settings, clicks.PIPELINE, clicks.TOPIC) >= len(streams.clicks)
                    and _committed(settings, "orders", orders.ORDERS) >= len(streams.orders)
                    and _committed(settings, "prices", orders.PRICES) >= len(streams.prices)
                ),
                second,
            )


def join(settings: Settings, folder: Path) -> None:
    """The Spark jobs, until they have read everything."""
    make_topic(settings, orders.LIMITS, 1)
    write_records(settings, orders.limits(clicks.USERS))
    texts = orders.jobs(settings.bootstrap_servers, str(folder / "checkpoints"))
    run_jobs([file for _, file in _write(folder, texts)])


def _write(folder: Path, texts: dict[str, str]) -> Iterator[tuple[str, Path]]:
    for name, text in texts.items():
        file = folder / f"{name}.yaml"
        file.write_text(text, "utf-8")
        yield name, file


def _committed(settings: Settings, pipeline: str, topic: str) -> int:
    return committed_offsets(settings, pipeline, topic).get(0, 0)


def _ends(records: Iterable[Record], journeys: Journeys) -> list[tuple[int, str]]:
    """When each click was made since the beginning, and how it ended."""
    return [
        (record.timestamp_ms - clicks.START_MS, fate(journeys, offset))
        for offset, record in enumerate(records)
    ]


def _tell(console: Console, count: int) -> None:
    console.print(
        f"{count} clicks of three users: some came twice, some late, one is not JSON.\n"
        "The pipeline puts them in order, throws out duplicates, counts each user's\n"
        "clicks in windows of 10 s, and lets a count go when it is final. Half-way the\n"
        "sidecar is killed (SIGKILL), and a new one goes on from what was committed.\n"
    )


def _tell_of_spark(console: Console, streams: Streams) -> None:
    console.print(
        f"\n{len(streams.orders)} orders and {len(streams.prices)} prices, out of order and some"
        " orders twice,\nwent through sidecars of their own. Spark now gives each order the price"
        " that its\nproduct had at the order's time; beside it, the same join of the raw topics, at"
        " once;\nand it looks for windows with more clicks than a user is allowed.\n"
    )
