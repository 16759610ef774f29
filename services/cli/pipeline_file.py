"""Read a pipeline from a file; what is wrong is one sentence a problem, with its place."""

from __future__ import annotations

from pathlib import Path

from contracts.errors import PipelineInvalid
from contracts.pipeline import PipelineSpec
from contracts.pipeline_text import read_pipeline
from contracts.problem_text import problem_line, together
from contracts.yaml_text import Form, parse_yaml, read_text
from services.cli.functions import function_problems

FORM = Form("a pipeline", "pipeline: clicks", PipelineInvalid)


def load_pipeline(file: Path) -> PipelineSpec:
    """The pipeline in a file; PipelineInvalid says all that is wrong, a line each."""
    text = read_text(lambda: file.open("rb"), str(file), FORM)
    document, places = parse_yaml(text, str(file), FORM)
    pipeline = read_pipeline(document, str(file), places)
    problems = [
        problem_line(path, sentence, str(file), places)
        for path, sentence in function_problems(pipeline)
    ]
    if problems:
        raise PipelineInvalid(together(problems))
    return pipeline
