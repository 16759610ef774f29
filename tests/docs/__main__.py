"""Gathers the site's pages in a folder: `make docs` builds the site from there."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.docs.site import gather

gather(Path(sys.argv[1]))
