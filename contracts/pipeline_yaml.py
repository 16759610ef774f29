"""Write a pipeline as the YAML that a person would write; reading it gives an equal pipeline.

The file leaves out what nobody has to write: defaults, names that are filled in, and the window
that a suppress takes from the aggregate before it.
"""

from __future__ import annotations

from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import AnyOperator, Policy
from headrace.contracts.time import format_duration_ms
from headrace.contracts.topology import with_windows
from headrace.contracts.yaml_text import write_yaml


def write_pipeline(spec: PipelineSpec) -> str:
    """Return the text of a pipeline's file."""
    written = _options(spec)
    written["operators"] = [
        {policy.kind: _options(_without_names(one))}
        for policy, one in zip(spec.operators, _without_windows(spec.operators), strict=True)
    ]
    return write_yaml(written)


def _without_names(policy: AnyOperator) -> AnyOperator:
    names = {
        "name": None if policy.name == policy.kind else policy.name,
        "store": None if policy.store == policy.name else policy.store,
    }
    return policy.model_copy(update=names)


def _without_windows(operators: tuple[AnyOperator, ...]) -> tuple[AnyOperator, ...]:
    """Return the operators without the windows that `with_windows` fills in."""
    for place, policy in enumerate(operators):
        if policy.kind == "suppress":
            without = policy.model_copy(update={"window": None})
            fewer = (*operators[:place], without, *operators[place + 1 :])
            if with_windows(fewer) == with_windows(operators):
                operators = fewer
    return operators


def _options(policy: Policy) -> dict[str, object]:
    options: dict[str, object] = {}
    values = dict(policy)
    for name, field in type(policy).model_fields.items():
        value = values[name]
        is_said_elsewhere = name == "kind" and hasattr(policy, "store")
        # Some defaults follow from other options, such as the late topic's name from the sink's.
        default = field.get_default(call_default_factory=True, validated_data=values)
        is_default = name != "kind" and not field.is_required() and value == default
        if not (is_said_elsewhere or is_default):
            options[str(field.alias)] = _written(name, value)
    return options


def _written(name: str, value: object) -> object:
    if isinstance(value, Policy):
        return _options(value)
    if name.endswith("_ms"):
        return format_duration_ms(value) if isinstance(value, int) else "never"
    return value
