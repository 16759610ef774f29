"""Print the schema: `python -m contracts.schemas > contracts/schemas/pipeline.schema.json`."""

from __future__ import annotations

import sys

from contracts.schemas import pipeline_schema

sys.stdout.write(pipeline_schema())
