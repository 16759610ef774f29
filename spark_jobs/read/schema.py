"""Turn a pydantic model into a Spark schema, exactly, or refuse it with the field's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo
from pyspark.sql import types as spark

from headrace.contracts.errors import SchemaRefused

_PLAIN: dict[Any, spark.DataType] = {
    bool: spark.BooleanType(),
    int: spark.LongType(),
    float: spark.DoubleType(),
    str: spark.StringType(),
    bytes: spark.BinaryType(),
    datetime: spark.TimestampType(),
    date: spark.DateType(),
}
_DIGITS_MAX = 38
_Models = tuple[type[BaseModel], ...]
"""The models around a field."""


class _Kind(NamedTuple):
    """The type of a field, without `Annotated` and `Optional`."""

    annotation: Any
    nullable: bool
    metadata: tuple[Any, ...]


def schema_of(model: type[BaseModel]) -> spark.StructType:
    """Return the columns of a model, by the names that its fields have in a value."""
    return _struct(model, model.__name__, ())


def _struct(model: type[BaseModel], path: str, around: _Models) -> spark.StructType:
    if model in around:
        what = f"holds {model.__name__} again, and a column ends somewhere"
        raise _refusal(path, what, "write out as many levels as there are, or read it as text")
    return spark.StructType(
        [
            _field(_name_of(name, field, path), field, f"{path}.{name}", (*around, model))
            for name, field in model.model_fields.items()
        ]
    )


def _name_of(name: str, field: FieldInfo, path: str) -> str:
    """Return the name of a field in a value; refuse one that only pydantic would look for."""
    written, read = field.alias or name, field.validation_alias
    names = read.choices if isinstance(read, AliasChoices) else [read or written]
    if written not in names:
        place = f"{path}.{name}"
        what = f"is `{written}` here, and pydantic reads it by another name"
        raise _refusal(place, what, 'give it the name that values have by `alias="..."`')
    return written


def _field(name: str, field: FieldInfo, path: str, around: _Models) -> spark.StructField:
    kind = _kind(field.annotation, tuple(field.metadata), path)
    nullable = kind.nullable or not field.is_required()
    return spark.StructField(name, _type(kind, path, around), nullable)


def _kind(annotation: Any, metadata: tuple[Any, ...], path: str) -> _Kind:
    """Take `Annotated` and `Optional` off."""
    if get_origin(annotation) is Annotated:
        annotation, *added = get_args(annotation)
        more = [each.metadata if isinstance(each, FieldInfo) else [each] for each in added]
        return _kind(annotation, (*metadata, *(each for some in more for each in some)), path)
    if get_origin(annotation) in {Union, UnionType}:
        others = [each for each in get_args(annotation) if each is not NoneType]
        if len(others) > 1:
            names = " | ".join(getattr(each, "__name__", str(each)) for each in others)
            raise _refusal(path, f"may be {names}, and a column has one type", "choose one of them")
        return _kind(others[0], metadata, path)._replace(nullable=True)
    return _Kind(annotation, nullable=False, metadata=metadata)


def _type(kind: _Kind, path: str, around: _Models) -> spark.DataType:
    annotation = kind.annotation
    plain = _PLAIN.get(annotation)
    if plain is not None:
        return plain
    if annotation is Decimal:
        return _decimal(kind.metadata, path)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return _type_of_values(inner, path)
    if origin in {list, set, frozenset} or (origin is tuple and inner[1:] == (...,)):
        item = _kind(inner[0], (), f"{path}[]")
        return spark.ArrayType(_type(item, f"{path}[]", around), item.nullable)
    if origin in {dict, Mapping}:
        return _map(inner, path, around)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _type_of_values([member.value for member in annotation], path)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _struct(annotation, path, around)
    name = getattr(annotation, "__name__", str(annotation))
    raise _refusal(path, f"is of type {name}, which no column has", "give it a type that Spark has")


def _map(inner: tuple[Any, ...], path: str, around: _Models) -> spark.DataType:
    key, value = inner
    if key is not str:
        raise _refusal(
            path, "has keys that are not text, and JSON has no others", "make them `str`"
        )
    kind = _kind(value, (), f"{path}{{}}")
    return spark.MapType(spark.StringType(), _type(kind, f"{path}{{}}", around), kind.nullable)


def _decimal(metadata: Iterable[Any], path: str) -> spark.DataType:
    bounds = list(metadata)
    found = [
        next((n for each in bounds if (n := getattr(each, name, None)) is not None), None)
        for name in ("max_digits", "decimal_places")
    ]
    digits, places = found
    if digits is None or places is None or digits > _DIGITS_MAX:
        raise _refusal(
            path,
            "is a decimal of unknown size",
            f"give it `Field(max_digits=..., decimal_places=...)`, {_DIGITS_MAX} digits at most",
        )
    return spark.DecimalType(digits, places)


def _type_of_values(values: Iterable[Any], path: str) -> spark.DataType:
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and (kind := kinds.pop()) in {str, int, bool}:
        return _PLAIN[kind]
    raise _refusal(path, "has values of several types", "let all of them be text, or whole numbers")


def _refusal(path: str, what: str, advice: str) -> SchemaRefused:
    return SchemaRefused(f"the field `{path}` {what}; {advice}")
