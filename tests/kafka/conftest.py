"""Which of these tests can run here."""

from __future__ import annotations

from tests.kafka.carriers import container_image

_NEED_CONTAINERS = [
    "test_compose.py",
    "test_sidecar_image.py",
    "test_spark_cluster.py",
    "test_spark_image.py",
]
collect_ignore = [] if container_image() else _NEED_CONTAINERS
