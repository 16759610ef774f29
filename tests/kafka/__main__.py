"""`python -m tests.kafka`: fetch the jars of Kafka and of its tools, or say what to install (2)."""

from __future__ import annotations

import sys

from headrace.contracts.errors import HeadraceError
from headrace.services.broker.jars import kafka_jars, kafka_version
from headrace.services.broker.prepare import prepare
from tests.kafka.tools import POM


def _tell(step: str) -> None:
    print(f"Kafka {kafka_version()}, once: {step}", flush=True)


def main() -> None:
    """Prepare, with a line a step."""
    try:
        prepare(_tell)
        kafka_jars(_tell, POM)
    except HeadraceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
