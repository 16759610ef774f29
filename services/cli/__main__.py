"""`python -m services.cli`, where the console script is not installed."""

from __future__ import annotations

from services.cli import main

main()
