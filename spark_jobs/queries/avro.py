"""The columns of an Avro schema, as DDL: those that its values have once a registry's JSON is read.

A timestamp in milliseconds is a whole number there, a finer one a time, and a decimal is exact
(`contracts/semantics/registry.md`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from headrace.contracts.errors import SchemaRefused
from headrace.contracts.raised import clause_of

_PLAIN = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "enum": "STRING",
    "bytes": "BINARY",
    "fixed": "BINARY",
}
_LOGICAL = {
    "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ",
    "local-timestamp-micros": "TIMESTAMP_NTZ",
    "date": "DATE",
    "time-millis": "STRING",
    "time-micros": "STRING",
}
_NAMED: tuple[Any, ...] = ("record", "enum", "fixed")


def avro(schema: str) -> str:
    """Return the columns of an Avro schema as DDL; it is a file `*.avsc`, or the schema's text."""
    text = schema
    if not schema.lstrip().startswith("{"):
        try:
            text = Path(schema).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            message = f"`avro`: the file `{schema}` cannot be read ({error})"
            raise SchemaRefused(message) from error
    try:
        found = json.loads(text)
    except ValueError as error:
        message = f"`avro`: this is not an Avro schema, which is JSON ({error})"
        raise SchemaRefused(message) from error
    if not isinstance(found, dict) or found.get("type") != "record":
        message = '`avro`: columns are those of a record; write a schema of `"type": "record"`'
        raise SchemaRefused(message)
    try:
        return _Columns().of(found, " ")
    except (KeyError, TypeError, AttributeError) as error:
        message = f"`avro`: this is not an Avro schema: {clause_of(error)}"
        raise SchemaRefused(message) from error


class _Columns:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        """Types by their full names, which later fields may use."""
        self._open: list[str] = []
        """The records around this place, by their full names."""
        self._namespace = ""

    def of(self, record: Mapping[str, Any], between: str) -> str:
        """Return the fields of a record, with their types behind this text."""
        outside, name = self._namespace, self._full_name(record)
        self._namespace = name.rpartition(".")[0]
        self._open.append(name)
        columns = [
            f"{_quoted(str(field['name']))}{between}{self._type(field['type'], field['name'])}"
            for field in record.get("fields", [])
        ]
        self._open.pop()
        self._namespace = outside
        return ", ".join(columns)

    def _type(self, written: Any, field: str) -> str:
        if isinstance(written, list):
            branches = [each for each in written if each != "null"]
            if len(branches) != 1:
                _refuse(field, "may be of several types, and a column has one")
            return self._type(branches[0], field)
        if isinstance(written, dict):
            return self._defined(written, field)
        full = self._full_name({"name": written})
        if full in self._open:
            _refuse(field, f"is a `{written}` inside of a `{written}`, which no column is")
        found = self._named.get(full)
        return _plain(written, field) if found is None else self._defined(found, field)

    def _defined(self, written: Mapping[str, Any], field: str) -> str:
        kind, logical = written["type"], written.get("logicalType")
        if kind in _NAMED:
            full = self._full_name(written)
            self._named[full] = {**written, "name": full}
        if logical == "decimal":
            return f"DECIMAL({written['precision']}, {written.get('scale', 0)})"
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        if kind == "record":
            return f"STRUCT<{self.of(written, ': ')}>"
        if kind == "array":
            return f"ARRAY<{self._type(written['items'], field)}>"
        if kind == "map":
            return f"MAP<STRING, {self._type(written['values'], field)}>"
        return _plain(kind, field) if isinstance(kind, str) else self._type(kind, field)

    def _full_name(self, written: Mapping[str, Any]) -> str:
        """Return a name with its namespace; without one it has that of the record around it."""
        name = str(written.get("name"))
        namespace = written.get("namespace", self._namespace)
        return name if "." in name or not namespace else f"{namespace}.{name}"


def _plain(kind: str, field: str) -> str:
    return _PLAIN.get(kind) or _refuse(field, f"is of type `{kind}`, which no column has")


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else f"`{name}`"


def _refuse(field: str, what: str) -> NoReturn:
    message = f"`avro`: the field `{field}` {what}; write the columns as DDL"
    raise SchemaRefused(message)
