"""`headrace run`: one instance of a sidecar, until it is told to stop."""

from __future__ import annotations

from pathlib import Path

from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.runtime.lifecycle import run_pipeline
from headrace.services.settings import read_settings


def run(
    pipeline: Path,
    *,
    bootstrap_servers: str | None = None,
    state_folder: Path | None = None,
    http_port: int | None = None,
) -> None:
    """Run one instance of a pipeline; start it again elsewhere to share the partitions.

    Everything else that differs from place to place is read from the environment, HEADRACE_*.

    Args:
        pipeline: The pipeline's YAML file.
        bootstrap_servers: Where the brokers are, `host:port` with commas between.
        state_folder: Where state lies on disk.
        http_port: Where /live, /ready and /metrics answer; nowhere if absent.
    """
    settings = read_settings(
        bootstrap_servers=bootstrap_servers, state_folder=state_folder, http_port=http_port
    )
    run_pipeline(load_pipeline(pipeline), settings)
