"""The metrics that a sidecar shows, as Prometheus reads them."""

from __future__ import annotations

import urllib.request


def scraped(port: int, metric: str) -> dict[str, float]:
    """The values of a metric, by their labels as they are written."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = [line.removeprefix(f"{metric}{{") for line in lines if line.startswith(f"{metric}{{")]
    return {labels: float(value) for labels, _, value in (one.rpartition("} ") for one in found)}
