"""Prints what `metrics.txt` keeps: `python -m tests.observe > tests/observe/metrics.txt`."""

from __future__ import annotations

import sys

from tests.observe.examples import busy_worker, page_of

sys.stdout.write(page_of(busy_worker()))
