"""The folder in which this machine caches downloads; pure, so the caller passes the environment."""

from __future__ import annotations

from collections.abc import Mapping


def cache_folder(environment: Mapping[str, str], home: str) -> str:
    """Return HEADRACE_CACHE if it is set, else a folder where the system keeps caches."""
    chosen = environment.get("HEADRACE_CACHE")
    caches = environment.get("XDG_CACHE_HOME") or f"{home}/.cache"
    return chosen or f"{caches}/headrace"
