"""From models to schemas: exact types, and refusals that name the field."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import AliasChoices, BaseModel, Field, create_model

from headrace.contracts.errors import SchemaRefused
from headrace.spark_jobs.read.schema import schema_of


class Kind(StrEnum):
    """Values of one type."""

    SMALL = "small"


class Mixed(Enum):
    """Values of two types."""

    ONE = 1
    TWO = "two"


class Line(BaseModel):
    """A schema inside another."""

    sku: str
    pieces: int


Money = Annotated[Decimal, Field(max_digits=12, decimal_places=2)]


class Order(BaseModel):
    """One field of every kind."""

    order_id: int
    amount: Money
    discount: Money | None = None
    rate: float
    paid: bool
    at: datetime
    due: date
    raw: bytes
    kind: Kind
    channel: Literal["web", "shop"]
    lines: list[Line]
    tags: dict[str, int | None]
    first: Line | None
    note: str = Field(alias="customer_note")


def test_every_type_is_as_wide_as_the_model_says() -> None:
    line = "struct<sku:string,pieces:bigint>"
    fields = schema_of(Order).fields
    assert [(each.name, each.dataType.simpleString(), each.nullable) for each in fields] == [
        ("order_id", "bigint", False),
        ("amount", "decimal(12,2)", False),
        ("discount", "decimal(12,2)", True),
        ("rate", "double", False),
        ("paid", "boolean", False),
        ("at", "timestamp", False),
        ("due", "date", False),
        ("raw", "binary", False),
        ("kind", "string", False),
        ("channel", "string", False),
        ("lines", f"array<{line}>", False),
        ("tags", "map<string,bigint>", False),
        ("first", line, True),
        ("customer_note", "string", False),
    ]


class Node(BaseModel):
    """A tree."""

    name: str
    children: list[Node]


def test_a_model_within_itself_is_refused() -> None:
    with pytest.raises(SchemaRefused, match=r"^the field `Node\.children\[\]` holds Node again"):
        schema_of(Node)


def test_a_name_that_pydantic_alone_reads_is_refused() -> None:
    renamed = create_model("Thing", order_id=(str, Field(validation_alias="orderId")))
    with pytest.raises(SchemaRefused, match=r"^the field `Thing\.order_id` is `order_id` here"):
        schema_of(renamed)
    several = AliasChoices("order_id", "orderId")
    both = create_model("Thing", order_id=(str, Field(validation_alias=several)))
    named = create_model("Thing", order_id=(str, Field(alias="orderId")))
    assert schema_of(both).fieldNames() == ["order_id"]
    assert schema_of(named).fieldNames() == ["orderId"]


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (int | str, "int | str"),
        (Decimal, "decimal of unknown size"),
        (Annotated[Decimal, Field(max_digits=40, decimal_places=2)], "38 digits at most"),
        (Mixed, "values of several types"),
        (Literal[1, "two"], "values of several types"),
        (dict[int, str], "keys that are not text"),
        (object, "type object"),
        (Any, "Any"),
        (list[int | str], "int | str"),
    ],
)
def test_a_field_that_no_column_can_hold_is_refused_with_its_name(
    annotation: Any, why: str
) -> None:
    model = create_model("Thing", wrong=(annotation, ...))
    with pytest.raises(SchemaRefused) as refused:
        schema_of(model)
    assert "`Thing.wrong" in str(refused.value)
    assert why in str(refused.value)
