"""The services of `docker/compose.yaml`, running: raw topics in, cleaned topics out, one killed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

import pytest
from testcontainers.core.container import DockerContainer

from headrace.contracts.record import Record
from tests.kafka.clients import Clients
from tests.kafka.compose import WITHIN_S, composing, wait_until_healthy

pytestmark = pytest.mark.long("containers", why="it runs the images of all services")

RAW_TOPICS = ("clicks.raw", "positions.raw", "prices.raw")
PARTITIONS = 3
USERS = [b"ada", b"bob", b"eve", b"joe", b"kim", b"lea"]
CLICKS = 12_000
POSITIONS = 3_000
PRICES = 2_000
# So short that all records come within one time limit of suppress.
STEP_MS = 2
MINUTE_MS = 60_000
# Half an hour ago: what comes from the future is dead.
START_MS = time.time_ns() // 1_000_000 - 30 * MINUTE_MS  # noqa: TID251


class Cleaning(NamedTuple):
    """A broker and the sidecars that need no Spark, running and healthy."""

    clients: Clients
    sidecars: dict[str, list[DockerContainer]]


@pytest.fixture
def cleaning(image_of_kafka: str) -> Iterator[Cleaning]:
    """Start everything, and wait until it is healthy."""
    with composing(image_of_kafka) as composed:
        for topic in RAW_TOPICS:
            composed.clients.make_topic(topic, PARTITIONS)
        sidecars = {name: composed.start(name) for name in composed.names()}
        for container in (one for some in sidecars.values() for one in some):
            wait_until_healthy(container)
        yield Cleaning(composed.clients, sidecars)


def _in_order(
    random: Random, topic: str, count: int, values: Callable[[int], bytes]
) -> list[Record]:
    """A record every step, of some user each, who stays in a partition."""
    users = random.choices(USERS, k=count)
    return [
        Record(user, values(n), START_MS + n * STEP_MS, (), topic, _home(user), None)
        for n, user in enumerate(users)
    ]


def _home(user: bytes) -> int:
    return USERS.index(user) % PARTITIONS


def _later(topic: str, value: bytes, minutes: int) -> list[Record]:
    """A record for each partition that ends all waiting there."""
    at_ms = START_MS + minutes * MINUTE_MS
    return [Record(b"end", value, at_ms, (), topic, n, None) for n in range(PARTITIONS)]


def _clicks(random: Random) -> list[Record]:
    """Clicks of which some come twice, and some before others that were made earlier."""
    once = _in_order(random, "clicks.raw", CLICKS, lambda n: b'{"event_id": "e%d"}' % n)
    twice = [click for click in once for _ in range(random.choice((1, 1, 1, 2)))]
    places = [n + random.choice((0, 0, 40)) for n in range(len(twice))]
    return [twice[n] for n in sorted(range(len(twice)), key=places.__getitem__)]


def _by_key(records: list[Record]) -> dict[bytes | None, list[bytes | None]]:
    """The values of each key, as they came."""
    found: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    for record in records:
        found[record.key].append(record.value)
    found.pop(b"end", None)
    return found


def _kill_one_and_clean_each_click_once(cleaning: Cleaning, clicks: list[Record]) -> None:
    clients, (first, _) = cleaning.clients, cleaning.sidecars["deduplicate"]
    third = len(clicks) // 3
    clients.produce("clicks.raw", clicks[:third])
    clients.consume("clicks.deduplicated", 1, within_s=WITHIN_S)
    first.get_wrapped_container().kill("SIGKILL")
    clients.produce("clicks.raw", clicks[third : 2 * third])
    wanted = {click.value for click in clicks[: 2 * third]}
    clients.consume("clicks.deduplicated", len(wanted), within_s=WITHIN_S)
    first.get_wrapped_container().start()
    clients.produce("clicks.raw", clicks[2 * third :])
    cleaned = clients.consume("clicks.deduplicated", CLICKS, within_s=WITHIN_S)
    # The first of each id, in the order in which they came: nothing lost, nothing doubled.
    assert _by_key(cleaned) == {
        user: list(dict.fromkeys(ids)) for user, ids in _by_key(clicks).items()
    }
    assert len(clients.end_offsets("clicks.deduplicated")) == PARTITIONS
    wait_until_healthy(first)


def _put_positions_in_order(clients: Clients, random: Random) -> None:
    positions = _in_order(
        random,
        "positions.raw",
        POSITIONS,
        lambda n: b'{"measured_at": %d}' % (START_MS + n * STEP_MS),
    )
    ended = b'{"measured_at": %d}' % (START_MS + 15 * MINUTE_MS)
    clients.produce("positions.raw", random.sample(positions, len(positions)))
    clients.produce("positions.raw", _later("positions.raw", ended, 15))
    ordered = clients.consume("positions.ordered", POSITIONS, within_s=WITHIN_S)
    assert _by_key(ordered) == _by_key(positions)


def _calm_prices(clients: Clients, random: Random) -> None:
    prices = _in_order(random, "prices.raw", PRICES, lambda n: b"%d" % n)
    clients.produce("prices.raw", [*prices, *_later("prices.raw", b"end", 15)])
    calm = _by_key(clients.consume("prices.calm", len(USERS), within_s=WITHIN_S))
    # All came within one time limit, so of each only the last price is left.
    assert calm == {user: values[-1:] for user, values in _by_key(prices).items()}


def _chain_all_three(clients: Clients, clicks: list[Record]) -> None:
    # Reorder holds back the first of them, and suppress hears of it with the second.
    for minutes in (15, 20):
        ended = b'{"event_id": "%d"}' % minutes
        clients.produce("clicks.raw", _later("clicks.raw", ended, minutes))
    cleaned = _by_key(clients.consume("clicks.cleaned", len(USERS), within_s=WITHIN_S))
    in_order = sorted(clicks, key=lambda click: click.timestamp_ms)
    assert cleaned == {user: ids[-1:] for user, ids in _by_key(in_order).items()}


def test_raw_topics_in_cleaned_topics_out_and_one_killed(cleaning: Cleaning) -> None:
    random = Random(1)
    clicks = _clicks(random)
    _kill_one_and_clean_each_click_once(cleaning, clicks)
    _put_positions_in_order(cleaning.clients, random)
    _calm_prices(cleaning.clients, random)
    _chain_all_three(cleaning.clients, clicks)
