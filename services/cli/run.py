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

    All other settings of an installation come from the environment, HEADRACE_*.

    Args:
        pipeline: The pipeline's YAML file.
        bootstrap_servers: The addresses of brokers: `host:port`, with commas between.
        state_folder: The folder of the state.
        http_port: The port of /live, /ready and /metrics; none by default.
    """
    settings = read_settings(
        bootstrap_servers=bootstrap_servers, state_folder=state_folder, http_port=http_port
    )
    run_pipeline(load_pipeline(pipeline), settings)
