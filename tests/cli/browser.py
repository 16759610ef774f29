"""A real browser that opens a page, where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

BROWSERS = [
    path
    for name in ("chromium", "chromium-browser", "google-chrome")
    if (path := shutil.which(name))
]


def opened(page: Path, folder: Path) -> str:
    """Open a page, and return its document as the browser has it; it must show something."""
    picture = folder / "page.png"
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=800,2600"]
    shot = [f"--screenshot={picture}", "--dump-dom", page.as_uri()]
    done = subprocess.run(
        [BROWSERS[0], *words, f"--user-data-dir={folder / 'profile'}", *shot],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    # A page that shows nothing is one colour, and packs into next to nothing.
    assert picture.stat().st_size > 30_000
    return done.stdout
