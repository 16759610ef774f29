"""A real YARN on this machine: a resource manager and one node, over its own disk."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import URLError

from headrace.services.broker.embedded import LIGHT_JAVA
from headrace.services.broker.jars import kafka_jars
from headrace.services.broker.java import find_java
from headrace.services.broker.ports import LOOPBACK, free_ports
from tests.runtime.sidecar import wait_until

POM = Path(__file__).with_name("yarn.xml")
_SERVERS = ("resourcemanager.ResourceManager", "nodemanager.NodeManager")
_QUEUES = "yarn.scheduler.capacity.root"


@contextmanager
def running_yarn(folder: Path) -> Iterator[Path]:
    """Run it, and give the folder that HADOOP_CONF_DIR names."""
    conf = folder / "conf"
    conf.mkdir()
    address = _configure(conf, folder)
    java = [find_java().path, *LIGHT_JAVA, "--add-opens=java.base/java.lang=ALL-UNNAMED"]
    classes = f"{conf}:{kafka_jars(pom=POM)}/*"
    with ExitStack() as stack:
        running = {}
        for server in _SERVERS:
            file = folder / f"{server}.log"
            command = [*java, "-cp", classes, f"org.apache.hadoop.yarn.server.{server}"]
            log = stack.enter_context(file.open("wb"))
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
            stack.callback(process.wait)
            # A node that is told to end ends what runs on it.
            stack.callback(process.terminate)
            running[file] = process
        wait_until(lambda: _has_node(address, running), "a node of YARN", [])
        yield conf


def _configure(conf: Path, folder: Path) -> str:
    """Write the settings; return the address of the resource manager's page."""
    scheduler, tracker, manager, admin, page, node, localizer, web = (
        f"{LOOPBACK}:{port}" for port in free_ports(8)
    )
    _write(conf / "core-site.xml", {"fs.defaultFS": "file:///"})
    _write(
        conf / "capacity-scheduler.xml",
        {
            f"{_QUEUES}.queues": "default",
            f"{_QUEUES}.default.capacity": "100",
            "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
        },
    )
    _write(
        conf / "yarn-site.xml",
        {
            "yarn.resourcemanager.scheduler.address": scheduler,
            "yarn.resourcemanager.resource-tracker.address": tracker,
            "yarn.resourcemanager.address": manager,
            "yarn.resourcemanager.admin.address": admin,
            "yarn.resourcemanager.webapp.address": page,
            "yarn.nodemanager.address": node,
            "yarn.nodemanager.localizer.address": localizer,
            "yarn.nodemanager.webapp.address": web,
            "yarn.nodemanager.local-dirs": str(folder / "local"),
            "yarn.nodemanager.log-dirs": str(folder / "logs"),
            "yarn.nodemanager.resource.memory-mb": "6144",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            # A disk that is nearly full is no reason to run nothing.
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.scheduler.minimum-allocation-mb": "128",
        },
    )
    (conf / "log4j.properties").write_text(
        "log4j.rootLogger=WARN,console\n"
        "log4j.appender.console=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.console.layout=org.apache.log4j.SimpleLayout\n"
    )
    return page


def _write(file: Path, settings: Mapping[str, str]) -> None:
    lines = (
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    file.write_text(f"<configuration>{''.join(lines)}</configuration>")


def _has_node(address: str, running: Mapping[Path, subprocess.Popen[bytes]]) -> bool:
    for log, process in running.items():
        assert process.poll() is None, log.read_text("utf-8", errors="replace")
    try:
        with urllib.request.urlopen(f"http://{address}/ws/v1/cluster/metrics") as answer:
            return bool(json.load(answer)["activeNodes"])
    except (URLError, ConnectionError):
        return False
