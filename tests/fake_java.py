"""A Java that can only say which one it is."""

from __future__ import annotations

from pathlib import Path


def put_java(folder: Path, says: str) -> Path:
    """Make the folder, and the program in it."""
    folder.mkdir()
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{says}\"' >&2\n")
    java.chmod(0o755)
    return java
