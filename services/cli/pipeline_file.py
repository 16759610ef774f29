"""Read a pipeline from a file; what is wrong is one sentence a problem, with its place."""

from __future__ import annotations

from pathlib import Path

from headrace.contracts.errors import PipelineInvalid
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.pipeline_text import read_pipeline
from headrace.contracts.problem_text import Places, problem_line, together
from headrace.contracts.yaml_text import Form, parse_yaml, read_text
from headrace.services.cli.functions import function_problems

FORM = Form("a pipeline", "pipeline: clicks", PipelineInvalid)


def load_pipeline(file: Path) -> PipelineSpec:
    """The pipeline in a file; PipelineInvalid says all that is wrong, a line each."""
    return parse_pipeline(read_text(lambda: file.open("rb"), str(file), FORM), str(file))


def parse_pipeline(text: str, file: str) -> PipelineSpec:
    """The pipeline that a file of this name says."""
    document, places = parse_yaml(text, file, FORM)
    return pipeline_of(document, file, places)


def pipeline_of(document: object, file: str, places: Places) -> PipelineSpec:
    """The pipeline that a document describes, after its functions were found."""
    pipeline = read_pipeline(document, file, places)
    problems = [
        problem_line(path, sentence, file, places) for path, sentence in function_problems(pipeline)
    ]
    if problems:
        raise PipelineInvalid(together(problems))
    return pipeline
