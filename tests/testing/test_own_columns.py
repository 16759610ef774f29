"""A record's own key, time and headers as columns of a query: selected, counted, never another."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.queries.described import Query, Select
from headrace.testing import check

KEYS = hr.table("prices.cleaned", "price BIGINT", retention="30d").select("key")
ORDERS = hr.stream("orders.cleaned", "id STRING")
PRICED = ORDERS.join_as_of(hr.table("prices.cleaned", "price BIGINT", retention="30d"))
RECORDS = """
    # topic         key  time  value        -> leaves
    prices.cleaned  p    1s    {"price":5}  ->
    orders.cleaned  p    2s    {"id":"a"}   ->
    (progress 5s)                           -> p@2s={LEAVES}
"""


@pytest.mark.parametrize(
    ("query", "leaves"),
    [
        (ORDERS.join_as_of(KEYS), '"id":"a"'),
        (ORDERS.join_as_of(KEYS).select("key", "*"), '"key":"p","id":"a"'),
        (PRICED.select("id", "`time`"), '"id":"a","time":"1970-01-01T00:00:02.000000Z"'),
        (PRICED.select("id", "KEY").select("*", "id AS other"), '"id":"a","key":"p","other":"a"'),
    ],
)
def test_the_key_of_a_table_is_no_column_of_what_meets_it(query: Query, leaves: str) -> None:
    check(query, RECORDS.replace("LEAVES", leaves))


def test_tables_of_keys_alone_have_no_columns_together() -> None:
    left = hr.table("left", "a BIGINT", pipeline=None).select("key")
    right = hr.table("right", "b BIGINT", pipeline=None).select("key")
    table = """
        # topic  key  time  value    -> leaves
        left     k    1s    {"a":1}  ->
        right    k    2s    {"b":1}  -> k@2s={}
    """
    check(left.join(right), table)


def test_a_column_that_sql_names_like_the_records_own_is_refused_here_as_in_spark() -> None:
    with pytest.raises(JobInvalid, match="calls a column `time`, which is the record's own time"):
        check(PRICED.select("price", "id time"), RECORDS)


def test_an_own_column_may_stand_among_all_and_behind_no_other_expression() -> None:
    query = PRICED.select("id", "price").select("*", "price AS more", "id key")
    step = query.steps[-1]
    assert isinstance(step, Select)
    # A column of `*` is no other one, at whatever place it stands.
    step.refuse_other_own(["id", "key"], ["id", "key", "more", "other"])
    step.refuse_other_own(["key", "id"], ["key", "id", "more", "other"])
    with pytest.raises(JobInvalid, match="calls a column `key`"):
        step.refuse_other_own(["id", "price"], ["id", "price", "more", "key"])
