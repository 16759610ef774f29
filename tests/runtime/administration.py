"""An administrator's acts on a cluster, beside the pipeline that runs on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.services.kafka.cluster import Cluster, connected
from headrace.services.settings import Settings
from tests.runtime.sidecar import Pipeline

T = TypeVar("T")


def administer(pipeline: Pipeline, act: Callable[[Cluster], Awaitable[T]]) -> T:
    """Do something to the cluster of a pipeline."""

    async def call() -> T:
        async with connected(Settings(bootstrap_servers=pipeline.servers)) as cluster:
            return await act(cluster)

    return asyncio.run(call())


def settings_of(pipeline: Pipeline, topic: str) -> dict[str, str]:
    """The settings that apply to a topic."""
    found = administer(pipeline, lambda cluster: cluster.settings([topic]))
    return {name: setting.value for name, setting in found[topic].items()}
