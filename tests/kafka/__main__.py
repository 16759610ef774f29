"""`python -m tests.kafka`: fetch what the embedded broker needs, or say what to install (2)."""

from __future__ import annotations

import sys

from contracts.errors import HeadraceError
from services.broker.jars import KAFKA_VERSION
from services.broker.prepare import prepare


def _tell(step: str) -> None:
    print(f"Kafka {KAFKA_VERSION}, once: {step}", flush=True)


def main() -> None:
    """Prepare, with a line a step."""
    try:
        prepare(_tell)
    except HeadraceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
