"""Print the schema; `make schema` keeps it in this folder."""

from __future__ import annotations

import sys

from headrace.contracts.schemas import pipeline_schema

sys.stdout.write(pipeline_schema())
