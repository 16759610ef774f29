"""Where and with what the race was run."""

from __future__ import annotations

import asyncio
import os
import platform
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from headrace.services.broker.jars import kafka_version

_PEERS = Path(__file__).parents[1] / "peers"
_LIBRARIES = ("faust-streaming", "aiokafka", "rocksdict")
_STAT = Path("/proc/stat")
_REST_SHARE = 0.05
_REST_S = 1.0
_REST_TRIES = 30


def machine() -> dict[str, str]:
    """The machine, without its name."""
    cpu = Path("/proc/cpuinfo").read_text("utf-8")
    model = re.search(r"^model name\s*:\s*(.+)$", cpu, re.MULTILINE)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": f"{os.cpu_count()} of {model[1] if model else platform.machine()}",
        "memory": f"{memory / (1 << 30):.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    """All that takes part."""
    quix = (_PEERS / "quix" / "requirements.txt").read_text("utf-8")
    streams = (_PEERS / "streams" / "pom.xml").read_text("utf-8")
    return {
        "broker": kafka_version(),
        "Kafka Streams": re.findall(r"<version>([^<]+)", streams)[1],
        "Quix Streams": re.findall(r"^quixstreams==(.+)$", quix, re.MULTILINE)[0],
        "Python": platform.python_version(),
        **{library: version(library) for library in _LIBRARIES},
    }


def load() -> str:
    """How busy the machine is: the means of the last 1, 5 and 15 minutes."""
    return " ".join(f"{mean:.1f}" for mean in os.getloadavg())


async def at_rest() -> None:
    """Wait until the machine does next to nothing, or give up: others may be at work on it.

    An earlier contestant leaves the broker topics to delete and changelogs to compact.
    """
    busy = busy_shares()
    next(busy)
    for _ in range(_REST_TRIES):
        await asyncio.sleep(_REST_S)
        if next(busy) < _REST_SHARE:
            return


def busy_shares(stat: Path = _STAT) -> Iterator[float]:
    """How much of all cores was in use since it was last asked; at first, since the start."""
    before = [0, 0]
    while True:
        ticks = [int(each) for each in stat.read_text("utf-8").split("\n", 1)[0].split()[1:]]
        # The time waiting for disks stands behind the idle time.
        now = [sum(ticks), sum(ticks[3:5])]
        passed, idle = (one - other for one, other in zip(now, before, strict=True))
        before = now
        yield 1 - idle / passed if passed else 0.0
