"""The carriers of a broker: a Java process always, containers where Docker and images are.

HEADRACE_KAFKA is `auto`, `process` (no containers) or `docker` (it is an error if there are none);
HEADRACE_KAFKA_IMAGE names another image than the official one. `make image-of-kafka` brings one.
"""

from __future__ import annotations

import os
from functools import cache

import pytest

from headrace.services.broker.jars import VERSIONS
from tests.kafka.containers import docker_answers, has_image

PROCESS = "process"
OFFICIAL = f"apache/kafka:{VERSIONS[0]}"
STANDIN = f"headrace/kafka:{VERSIONS[0]}"
SIDECAR = "headrace/sidecar:latest"
SPARK = "headrace/spark:latest"
"""These two are built and used by the section `containers` of `make test-long` alone."""
DECIDED = "HEADRACE_IMAGE_OF_THIS_RUN"
"""Where the first process of a run tells the others its answer; nothing means no containers."""


@cache
def carriers() -> tuple[str, ...]:
    """The process, and the image if there is one."""
    image = container_image()
    return (PROCESS,) if image is None else (PROCESS, image)


def decide() -> None:
    """Ask Docker once for all processes of a run.

    If Docker answered one process and not another one, they would collect different tests, and none
    of them would run.
    """
    os.environ[DECIDED] = container_image() or ""


@cache
def container_image() -> str | None:
    """The image that containers are made of, or None where there are no containers."""
    decided = os.environ.get(DECIDED)
    if decided is not None:
        return decided or None
    wanted = os.environ.get("HEADRACE_KAFKA", "auto")
    if wanted not in ("auto", PROCESS, "docker"):
        message = f"HEADRACE_KAFKA={wanted} is none of auto, process and docker"
        raise pytest.UsageError(message)
    if wanted == PROCESS:
        return None
    if not docker_answers():
        if wanted == "docker":
            message = "HEADRACE_KAFKA=docker, and Docker does not answer"
            raise pytest.UsageError(message)
        return None
    images = [os.environ.get("HEADRACE_KAFKA_IMAGE") or OFFICIAL, STANDIN]
    here = [image for image in images if has_image(image)]
    if here:
        return here[0]
    if wanted == "docker":
        message = (
            "HEADRACE_KAFKA=docker, and Kafka's image is not here; `make image-of-kafka` builds it"
        )
        raise pytest.UsageError(message)
    return None
