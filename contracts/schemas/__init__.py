"""The JSON Schema of pipeline files, for editors; generated, checked in, and compared in a test."""

from __future__ import annotations

import json
from typing import Any

from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import OPERATOR_KINDS, WINDOW_KINDS, MergePolicy, Policy

SCHEMA_FILE = "pipeline.schema.json"


def pipeline_schema() -> str:
    """Return the schema of a pipeline file, as text."""
    schema = PipelineSpec.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    definitions.pop(MergePolicy.__name__)
    # In a file the kind is the key above the options, and not an option.
    for policy in OPERATOR_KINDS.values():
        definitions[policy.__name__]["properties"].pop("kind")
    for window in WINDOW_KINDS.values():
        definitions[window.__name__]["required"] = ["kind", *_required(window)]
    operators = schema["properties"]["operators"]
    operators["items"] = {"oneOf": [_single_key(kind) for kind in OPERATOR_KINDS]}
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "A headrace pipeline"
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def _single_key(kind: str) -> dict[str, Any]:
    options: dict[str, Any] = {"$ref": f"#/$defs/{OPERATOR_KINDS[kind].__name__}"}
    if not _required(OPERATOR_KINDS[kind]):
        options = {"anyOf": [options, {"type": "null"}]}
    return {
        "type": "object",
        "properties": {kind: options},
        "required": [kind],
        "additionalProperties": False,
    }


def _required(policy: type[Policy]) -> list[str]:
    return [str(field.alias) for field in policy.model_fields.values() if field.is_required()]
