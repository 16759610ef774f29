"""A pipeline written in Python: the same object as its YAML.

    import headrace as hr

    clicks = (
        hr.Pipeline("clicks")
        .source("clicks.raw")
        .reorder(grace="30s")
        .deduplicate(by="key+id", id="value.event_id", interval="10m")
        .to("clicks.cleaned")
    )

Each call gives a new value, and checks what it was given: what is wrong is the sentence that a file
would get. `to` ends a pipeline.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn, Unpack

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from headrace.contracts.errors import PipelineInvalid
from headrace.contracts.pipeline import PipelineSpec, Source
from headrace.contracts.pipeline_text import OPERATOR, problems
from headrace.contracts.pipeline_yaml import write_pipeline
from headrace.contracts.policies import AnyOperator, Policy
from headrace.contracts.problem_text import Path as KeyPath
from headrace.contracts.problem_text import shortened, show, together
from headrace.contracts.time import COUNT_MAX, parse_size_bytes
from headrace.contracts.topology import operator_problems, with_names
from headrace.extras import load
from headrace.options import (
    AggregateOptions,
    DeduplicateOptions,
    DistinctOptions,
    FilterOptions,
    ReorderOptions,
    SampleOptions,
    SinkOptions,
    SourceOptions,
    SuppressOptions,
    TableOptions,
)

_ENDS: Mapping[KeyPath, str] = {("sink",): "topic", ("late",): "late", ("dead",): "dead"}


@dataclass(frozen=True)
class Pipeline:
    """From a source topic through operators to a cleaned topic; `to` completes it."""

    name: str
    _source: Source | None = None
    _operators: tuple[AnyOperator, ...] = ()
    _spec: PipelineSpec | None = None

    def source(self, topic: str, **options: Unpack[SourceOptions]) -> Pipeline:
        """Read records from a topic."""
        written = {"topic": topic, **self._written("source", options)}
        self._refuse_behind_end("source")
        if self._source is not None:
            message = (
                f"{self._place()}.source: it reads {show(self._source.topic)} already; write a"
                " pipeline for each source"
            )
            raise PipelineInvalid(message)
        try:
            source = Source.model_validate(written, by_alias=True, by_name=False)
        except ValidationError as error:
            self._refuse(problems(_moved(error, ("source",)), {"source": written}))
        if unsaid := problems([], {"source": written}):
            self._refuse(unsaid)
        return replace(self, _source=source)

    def reorder(self, **options: Unpack[ReorderOptions]) -> Pipeline:
        """Hold records until no earlier one can come in time (KIP-923)."""
        return self._then("reorder", options)

    def deduplicate(self, **options: Unpack[DeduplicateOptions]) -> Pipeline:
        """Forward the first record of an id, drop the others within the interval (KIP-655)."""
        return self._then("deduplicate", options)

    def distinct(self, **options: Unpack[DistinctOptions]) -> Pipeline:
        """Forward the first record of each key and window."""
        return self._then("distinct", options)

    def table(self, **options: Unpack[TableOptions]) -> Pipeline:
        """Keep the latest value by key; the next operators see the old value beside the new one."""
        return self._then("table", options)

    def filter(self, **options: Unpack[FilterOptions]) -> Pipeline:
        """Keep records for which a comparison or a function holds."""
        return self._then("filter", options)

    def sample(self, **options: Unpack[SampleOptions]) -> Pipeline:
        """Keep one key in so many, with all of its records."""
        return self._then("sample", options)

    def aggregate(self, **options: Unpack[AggregateOptions]) -> Pipeline:
        """Fold many records into one value, by key and, if given, by window."""
        return self._then("aggregate", options)

    def suppress(self, **options: Unpack[SuppressOptions]) -> Pipeline:
        """Hold updates until a time limit, or until their window is closed (KIP-328)."""
        return self._then("suppress", options)

    def to(self, topic: str, **options: Unpack[SinkOptions]) -> Pipeline:
        """Write cleaned records to a topic, which completes the pipeline."""
        self._refuse_behind_end("to")
        if self._source is None:
            message = (
                f"{self._place()}.to: it has no source; put one in front, such as"
                ' `.source("clicks.raw")`'
            )
            raise PipelineInvalid(message)
        if not self._operators:
            message = (
                f"{self._place()}.to: no operator stands before it; put one there, such as"
                ' `.reorder(grace="30s")`'
            )
            raise PipelineInvalid(message)
        written = self._written("to", options)
        for role in ("late", "dead"):
            if role in written:
                written[role] = {"topic": written[role]}
        document: dict[str, object] = {
            "pipeline": self.name,
            "source": self._source,
            **written,
            "operators": list(self._operators),
            "sink": {"topic": topic},
        }
        try:
            spec = PipelineSpec.model_validate(document, by_alias=True, by_name=False)
        except ValidationError as error:
            self._refuse(problems(error.errors(include_url=False), document))
        return replace(self, _operators=spec.operators, _spec=spec)

    @property
    def spec(self) -> PipelineSpec:
        """The content of its file; PipelineInvalid if it has no end yet."""
        if self._spec is None:
            message = f'{self._place()}: it has no end; write `.to("clicks.cleaned")` behind it'
            raise PipelineInvalid(message)
        return self._spec

    def yaml(self) -> str:
        """Return its file; a pipeline that is read from it is the same."""
        return write_pipeline(self.spec)

    def plan(self, *, records_per_second: int | None = None, record_size: str = "500B") -> None:
        """Print the same as `headrace plan`; this connects to nothing."""
        spec = self.checked()
        from_cli = {"extra": "sidecar", "needed_for": "`plan`"}
        traffic = None
        if records_per_second is not None:
            self._refuse_no_count(records_per_second)
            make_traffic = load("headrace.services.cli.state_size:Traffic", **from_cli)
            traffic = make_traffic(records_per_second, parse_size_bytes(record_size))
        console = load("rich.console:Console", **from_cli)(highlight=False)
        load("headrace.services.cli.plan:print_plan", **from_cli)(spec, console, traffic)

    def run(
        self,
        *,
        bootstrap_servers: str | None = None,
        state_folder: Path | None = None,
        http_port: int | None = None,
    ) -> None:
        """Run one instance until a signal stops it, as `headrace run` does.

        All other settings of a place are read from the environment, HEADRACE_*.
        """
        spec = self.checked()
        of_sidecar = {"extra": "sidecar", "needed_for": "`run`"}
        read_settings = load("headrace.services.settings:read_settings", **of_sidecar)
        run_pipeline = load("headrace.services.runtime.lifecycle:run_pipeline", **of_sidecar)
        settings = read_settings(
            bootstrap_servers=bootstrap_servers, state_folder=state_folder, http_port=http_port
        )
        run_pipeline(spec, settings)

    def checked(self) -> PipelineSpec:
        """Return its spec, after a check that its functions can be found."""
        find = load(
            "headrace.services.cli.functions:function_problems", extra="sidecar", needed_for="`run`"
        )
        if found := list(find(self.spec)):
            self._refuse(found)
        return self.spec

    def _then(self, kind: str, options: Mapping[str, object]) -> Pipeline:
        self._refuse_behind_end(kind)
        place = len(self._operators)
        written = {kind: self._written(kind, options)}
        try:
            policy = OPERATOR.validate_python(written, by_alias=True, by_name=False)
        except ValidationError as error:
            document = {"operators": [*[None] * place, written]}
            found = _moved(error, ("operators", place), whole=(kind,))
            self._refuse(problems(found, document))
        operators = (*self._operators, policy)
        named = with_names(operators)
        misfits = [(("operators", *path), text) for path, text in operator_problems(named)]
        if misfits:
            self._refuse(misfits)
        return replace(self, _operators=operators)

    def _written(self, step: str, options: Mapping[str, object]) -> dict[str, Any]:
        """Return options as a file has them: `-` in names, and functions by their names."""
        written: dict[str, Any] = {}
        for option, value in options.items():
            name = str(option).replace("_", "-")
            if isinstance(value, Mapping):
                written[name] = self._written(f"{step}({option})", value)
            elif value is None or isinstance(value, str | int | float | list | tuple | Policy):
                written[name] = value
            elif isinstance(value, timedelta):
                where = f"{self._place()}.{step}({option})"
                message = (
                    f"{where}: {show(str(value))} is a timedelta; write the duration as text, such"
                    ' as "30s"'
                )
                raise PipelineInvalid(message)
            else:
                written[name] = self._name_of(value, f"{step}({option})")
        return written

    def _name_of(self, function: object, step: str) -> str:
        """Return the name by which a sidecar, perhaps in another process, imports a function."""
        module = getattr(function, "__module__", None)
        name = getattr(function, "__qualname__", None)
        where = f"{self._place()}.{step}"
        if name is None or not callable(function):
            message = (
                f"{where}: {show(type(function).__name__)} is an object without a name; pass a"
                " function or a class of a module, or name it `module:name`"
            )
        elif "<lambda>" in name:
            message = (
                f"{where}: a lambda has no name that a sidecar could import; write a function in a"
                " module, and pass that"
            )
        elif "<locals>" in name:
            message = (
                f"{where}: {show(name.rpartition('.')[2])} stands inside of a function, where a"
                " sidecar cannot import it; move it to the top of its module"
            )
        elif module == "__main__":
            message = (
                f"{where}: {show(name)} stands in the script that runs, which has no name to import"
                " it by; move it into a module of its own"
            )
        elif _found(module, name) is not function:
            message = (
                f"{where}: {show(f'{module}:{name}')} names something else; pass what stands at the"
                " top of a module under its own name"
            )
        else:
            return f"{module}:{name}"
        raise PipelineInvalid(message)

    def _refuse_behind_end(self, step: str) -> None:
        if self._spec is not None:
            message = f"{self._place()}.{step}: it stands behind `to`, which ends a pipeline"
            raise PipelineInvalid(message)

    def _refuse_no_count(self, records_per_second: object) -> None:
        if not isinstance(records_per_second, int) or not 0 <= records_per_second <= COUNT_MAX:
            message = (
                f"{self._place()}.plan(records_per_second): {show(records_per_second)} is not a"
                f" whole number from 0 to {COUNT_MAX}; write one"
            )
            raise PipelineInvalid(message)

    def _refuse(self, found: Iterable[tuple[KeyPath, str]]) -> NoReturn:
        lines = [f"{self._place(path)}: {sentence}" for path, sentence in found]
        raise PipelineInvalid(together(lines))

    def _place(self, path: KeyPath = ()) -> str:
        """Return a place in Python's words: `Pipeline("clicks").reorder(grace)`."""
        pipeline = f'Pipeline("{shortened(self.name)}")'
        options: KeyPath
        if path[:1] == ("operators",) and len(path) > 1:
            kinds = [policy.kind for policy in self._operators]
            step, options = (path[2], path[3:]) if path[2:] else (kinds[int(path[1])], ())
        elif path[:1] == ("source",):
            step, options = "source", path[1:]
        elif path[:1] in _ENDS:
            step, options = "to", (_ENDS[path[:1]],)
        elif path and path != ("pipeline",):
            step, options = "to", path
        else:
            return pipeline
        said = _dotted(options)
        return f"{pipeline}.{step}({said})" if said else f"{pipeline}.{step}"


def _moved(error: ValidationError, to: KeyPath, whole: KeyPath = ()) -> list[ErrorDetails]:
    """Move the problems of a part to its place; those of the part as a whole to `whole` in it."""
    return [
        {**details, "loc": (*to, *(details["loc"] or whole))}
        for details in error.errors(include_url=False)
    ]


def _dotted(steps: Iterable[int | str]) -> str:
    return ".".join(str(step).replace("-", "_") for step in steps)


def _found(module: str | None, name: str) -> object:
    try:
        found: object = attrgetter(name)(sys.modules[str(module)])
    except (AttributeError, KeyError):
        return None
    return found
