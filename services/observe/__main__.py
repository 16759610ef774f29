"""Prints METRICS.md: `make metrics`."""

from __future__ import annotations

import sys

from headrace.services.observe.metrics_page import page

sys.stdout.write(page())
