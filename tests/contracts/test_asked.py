"""The judgement of a registry's answers: what is asked again, and what is refused for good."""

from __future__ import annotations

import json

import pytest

from headrace.contracts.serde.asked import (
    Denied,
    Foreign,
    Missing,
    NoAnswer,
    NoSchema,
    answered,
    schema_of,
)
from headrace.contracts.serde.registered import Schema

SCHEMA = b'{"schema": "\\"string\\""}'
NO_SCHEMA = json.dumps({"error_code": 40403, "message": "Schema 7 not found"}).encode()
NO_PAGE = json.dumps({"error_code": 404, "message": "HTTP 404 Not Found"}).encode()


def test_an_answer_is_its_fields_and_none_if_it_is_of_another_protocol() -> None:
    assert answered(200, SCHEMA, is_cut=False) == {"schema": '"string"'}
    for foreign in (b"<html>", b"[]", b"\xff", b""):
        assert answered(200, foreign, is_cut=False) == {}


@pytest.mark.parametrize(
    ("status", "answer", "is_cut", "raised", "why"),
    [
        (200, SCHEMA, True, NoAnswer, "its answer ends too early"),
        (404, NO_SCHEMA, True, NoAnswer, "its answer ends too early"),
        (408, b"", False, NoAnswer, "it answers 408"),
        (429, b"", False, NoAnswer, "it answers 429"),
        (500, NO_SCHEMA, False, NoAnswer, "it answers 500"),
        (503, b"", True, NoAnswer, "it answers 503"),
        (404, NO_SCHEMA, False, Missing, "Schema 7 not found"),
        (404, b'{"error_code": 40401}', False, Missing, "not found"),
        (404, NO_PAGE, False, Foreign, "404"),
        (404, b"<html>", False, Foreign, "404"),
        (302, b"", False, Foreign, "302"),
        (401, b"", False, Denied, "401"),
        (403, b"{}", False, Denied, "403"),
    ],
)
def test_a_refusal_says_whether_asking_again_may_help(
    status: int,
    answer: bytes,
    is_cut: bool,  # noqa: FBT001 - a column of the table
    raised: type[Exception],
    why: str,
) -> None:
    with pytest.raises(raised) as refusal:
        answered(status, answer, is_cut=is_cut)
    assert str(refusal.value) == why


@pytest.mark.parametrize("kind", [{}, {"schemaType": None}, {"schemaType": "AVRO"}])
def test_a_schema_without_a_type_is_avro(kind: dict[str, str | None]) -> None:
    answer = {"schema": '"string"'} | kind
    assert schema_of(7, lambda _: answer) == Schema("AVRO", '"string"')


@pytest.mark.parametrize(
    "references",
    [{"name": "a"}, "a", 7, [7], ["a"], [{}], [{"name": "a", "subject": 7, "version": 1}], [None]],
)
def test_references_that_no_registry_gives_are_no_schema(references: object) -> None:
    answer = {"schema": '"string"', "references": references}
    with pytest.raises(NoSchema):
        schema_of(7, lambda _: answer)


def test_schemas_that_refer_to_one_another_are_no_schema() -> None:
    def ask(path: str) -> dict[str, object]:
        other = "b" if path.startswith("/subjects/a/") else "a"
        return {"schema": "{}", "references": [{"name": other, "subject": other, "version": 1}]}

    with pytest.raises(NoSchema):
        schema_of(7, ask)


@pytest.mark.parametrize("answer", [100_000 * b"[", b'{"error_code": [40401]}'])
def test_a_refusal_in_another_form_is_that_of_another_program(answer: bytes) -> None:
    with pytest.raises(Foreign, match="404"):
        answered(404, answer, is_cut=False)
