"""Where and with what the race was run."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

from services.broker.jars import KAFKA_VERSION

_PEERS = Path(__file__).parents[1] / "peers"
_LIBRARIES = ("faust-streaming", "aiokafka", "rocksdict")


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
        "broker": KAFKA_VERSION,
        "Kafka Streams": re.findall(r"<version>([^<]+)", streams)[1],
        "Quix Streams": re.findall(r"^quixstreams==(.+)$", quix, re.MULTILINE)[0],
        "Python": platform.python_version(),
        **{library: version(library) for library in _LIBRARIES},
    }


def load() -> str:
    """How busy the machine is: the means of the last 1, 5 and 15 minutes."""
    return " ".join(f"{mean:.1f}" for mean in os.getloadavg())
