"""Ask a schema registry for a schema, in Confluent's protocol, and judge its answers.

The caller opens the connection, waits, and puts what is raised here into its own sentences.

A schema that another one refers to has a subject and a version. A Protobuf schema is taken as its
serialized descriptor, so that nobody has to parse its language.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from headrace.contracts.serde.registered import Named, Schema
from headrace.contracts.servers import fields_in, may_answer_later

Ask = Callable[[str], dict[str, Any]]
"""Returns the fields of the answer to a path."""
Post = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""Returns the fields of the answer to a path and the fields that are sent there."""
SENT = "application/vnd.schemaregistry.v1+json"
ACCEPTED = f"{SENT}, application/json"
_NOT_FOUND = frozenset({40401, 40402, 40403})
"""Subject, version and schema, as the protocol counts them; a 404 of anybody else has none."""
_SERIALIZED = "format=serialized"
_OK, _UNAUTHORIZED, _FORBIDDEN = 200, 401, 403
_UNFIT = frozenset({409, 422})


class NoSchema(Exception):
    """An answer has no schema, as that of another program."""


class NoAnswer(Exception):
    """The registry is busy or broken, or its answer was cut; asking again may help."""


class Missing(Exception):
    """The registry answers that it has no such schema."""


class Denied(Exception):
    """The registry refuses the login that it was asked with."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Foreign(Exception):
    """No registry refuses like this, so another program answers."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Unfit(Foreign):
    """The registry refuses a schema, and says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(status)
        self.why = why


def number_of(subject: str, schema: str, post: Post) -> int:
    """Return the number of an Avro schema in a subject, which gets it if it lacks it."""
    path = f"/subjects/{quote(subject, safe='')}"
    sent = {"schema": schema}
    try:
        found = post(path, sent)
    except Missing:
        found = post(f"{path}/versions", sent)
    number = found.get("id")
    if isinstance(number, int):
        return number
    raise NoSchema


def schema_of(number: int, ask: Ask) -> Schema:
    """Return the schema of a number, with all that it refers to; NoSchema if an answer has none."""
    path = f"/schemas/ids/{number}"
    found = ask(path)
    kind = str(found.get("schemaType") or "AVRO")
    if kind == "PROTOBUF":
        found = ask(f"{path}?{_SERIALIZED}")
    referred: dict[str, str] = {}
    _follow(found, kind, ask, referred)
    references = tuple(Named(*one) for one in referred.items())
    return Schema(kind, _text_of(found), references)


def answered(status: int, answer: bytes, *, is_cut: bool) -> dict[str, Any]:
    """Return the fields of an answer; raise what a refusal means."""
    if may_answer_later(status):
        message = f"it answers {status}"
        raise NoAnswer(message)
    if is_cut:
        message = "its answer ends too early"
        raise NoAnswer(message)
    fields = fields_in(answer)
    if status == _OK:
        return fields
    code = fields.get("error_code")
    if isinstance(code, int) and code in _NOT_FOUND:
        raise Missing(str(fields.get("message", "not found")))
    if status in {_UNAUTHORIZED, _FORBIDDEN}:
        raise Denied(status)
    if status in _UNFIT and "error_code" in fields:
        raise Unfit(status, str(fields.get("message", "it does not say why")))
    raise Foreign(status)


def _follow(
    found: Mapping[str, Any],
    kind: str,
    ask: Ask,
    referred: dict[str, str],
    within: tuple[str, ...] = (),
) -> None:
    for name, subject, version in _references_in(found):
        if name in within:
            raise NoSchema
        if name in referred:
            continue
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
        answer = ask(f"{path}&{_SERIALIZED}" if kind == "PROTOBUF" else path)
        _follow(answer, kind, ask, referred, (*within, name))
        referred[name] = _text_of(answer)


def _references_in(found: Mapping[str, Any]) -> list[tuple[str, str, object]]:
    """Return name, subject and version of each; NoSchema where no registry says it like this."""
    references = found.get("references") or []
    try:
        named = [(one["name"], one["subject"], one["version"]) for one in references]
    except (LookupError, TypeError) as problem:
        raise NoSchema from problem
    if all(isinstance(part, str) for name, subject, _ in named for part in (name, subject)):
        return named
    raise NoSchema


def _text_of(answer: Mapping[str, Any]) -> str:
    text = answer.get("schema")
    if isinstance(text, str):
        return text
    raise NoSchema
