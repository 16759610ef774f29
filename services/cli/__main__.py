"""`python -m headrace.services.cli`, where the console script is not installed."""

from __future__ import annotations

from headrace.services.cli import main

main()
