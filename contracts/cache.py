"""Where this machine keeps what is fetched or made once; pure, so the environment is handed in."""

from __future__ import annotations

from collections.abc import Mapping


def cache_folder(environment: Mapping[str, str], home: str) -> str:
    """HEADRACE_CACHE, or else a folder where the system keeps caches."""
    chosen = environment.get("HEADRACE_CACHE")
    caches = environment.get("XDG_CACHE_HOME") or f"{home}/.cache"
    return chosen or f"{caches}/headrace"
