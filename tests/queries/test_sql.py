"""SQL is the same description as the calls that it stands for, or a sentence."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.contracts.errors import JobInvalid

PRICES = hr.table("prices.cleaned", "price_cents BIGINT", retention="30d")
ORDERS = hr.stream("orders.cleaned", "order_id STRING, product STRING, quantity BIGINT")
BOUGHT = hr.table("bought.cleaned", "customer STRING, cents BIGINT")
CUSTOMERS = hr.table("customers.cleaned", "name STRING, segment STRING")
AS_OF = "orders o JOIN prices FOR SYSTEM_TIME AS OF o.time AS p ON o.product = p.key"

ANOTHER_TIME = (
    "SELECT * FROM orders o JOIN prices FOR SYSTEM_TIME AS OF o.quantity AS p ON o.key = p.key"
)


def test_a_temporal_join_is_join_as_of() -> None:
    found = hr.sql(
        "SELECT o.key, order_id, p.price_cents * o.quantity AS total FROM @"
        " WHERE o.quantity > 0".replace("@", AS_OF),
        orders=ORDERS,
        prices=PRICES,
    )
    joined = ORDERS.join_as_of(PRICES, on="product")
    wanted = joined.filter("quantity > 0").select(
        "key", "order_id", "price_cents * quantity AS total"
    )
    assert found == wanted


def test_a_left_join_by_the_key_waits_as_it_is_told() -> None:
    found = hr.sql(
        "SELECT * FROM orders LEFT JOIN prices FOR SYSTEM_TIME AS OF time AS p"
        " ON p.key = orders.key",
        orders=ORDERS,
        prices=PRICES,
        grace="10s",
        corrections=True,
    )
    assert found == ORDERS.join_as_of(PRICES, how="left", grace="10s", corrections=True)


def test_tables_are_joined_grouped_and_chosen_from() -> None:
    found = hr.sql(
        "SELECT segment, count(*) AS orders, sum(cents) / 100 AS euros"
        " FROM bought b JOIN customers c ON b.customer = c.key"
        " GROUP BY segment HAVING count(*) > 1",
        bought=BOUGHT,
        customers=CUSTOMERS,
    )
    grouped = BOUGHT.join_on(CUSTOMERS, "customer").group_by("segment")
    wanted = grouped.agg(hr.count(), hr.sum("cents")).filter("count > 1")
    assert found == wanted.select("segment", "count AS orders", "sum_cents / 100 AS euros")
    by_key = hr.sql("SELECT * FROM a FULL JOIN b ON a.key = b.key", a=BOUGHT, b=CUSTOMERS)
    assert by_key == BOUGHT.join(CUSTOMERS, how="outer")


def test_an_aggregates_expression_is_selected_before() -> None:
    found = hr.sql("SELECT max(cents * 2) FROM b GROUP BY customer", b=BOUGHT)
    selected = BOUGHT.select("*", "cents * 2 AS _0").group_by("customer")
    assert found == selected.agg(hr.max("_0").alias("max_0")).select("max_0 AS max_0")


def test_values_are_collected() -> None:
    found = hr.sql("SELECT collect_list(cents) AS all FROM b GROUP BY customer", b=BOUGHT)
    wanted = BOUGHT.group_by("customer").agg(hr.collect("cents"))
    assert found == wanted.select("collect_cents AS all")


ORDERED = "SELECT * FROM orders o LEFT JOIN payments p ON o.key = p.key"
NEAR = " AND p.time BETWEEN o.time - @ AND o.time + @"
NEAR_TOO = " AND o.time BETWEEN p.time - @ AND p.time + @"
PAYMENTS = hr.stream("payments.cleaned", "cents BIGINT")


def test_two_streams_meet_by_columns_and_with_a_grace() -> None:
    query = ORDERED.replace("o.key = p.key", "p.cents = o.quantity") + NEAR
    raw = hr.stream("payments.raw", "cents BIGINT")
    found = hr.sql(
        query.replace("@", "INTERVAL 10 MINUTES"), orders=ORDERS, payments=raw, grace="1m"
    )
    wanted = ORDERS.join_within(raw, within="10m", on=("quantity", "cents"), how="left", grace="1m")
    assert found == wanted
    with pytest.raises(JobInvalid, match="`corrections` is of a stream joined as of a table"):
        hr.sql(
            (ORDERED + NEAR).replace("@", "INTERVAL 10 MINUTES"),
            orders=ORDERS,
            payments=PAYMENTS,
            corrections=True,
        )


@pytest.mark.parametrize("near", [NEAR, NEAR_TOO])
@pytest.mark.parametrize("interval", ["INTERVAL 10 MINUTES", "INTERVAL '600 seconds'"])
def test_two_streams_meet_within_a_window(near: str, interval: str) -> None:
    query = ORDERED + near.replace("@", interval)
    found = hr.sql(query, orders=ORDERS, payments=PAYMENTS)
    assert found == ORDERS.join_within(PAYMENTS, within="10m", how="left")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("o.time + @", "o.time + INTERVAL 5 MINUTES"),
        (NEAR, ""),
        ("o.key =", "o.key >"),
        ("o.key = p.key", "o.key = o.key"),
        ("o.key = p.key", "o.key = p.key AND o.product = p.product"),
        ("@", "INTERVAL 1 MONTH"),
        ("BETWEEN o.time", "BETWEEN o.quantity"),
    ],
)
def test_two_streams_meet_in_no_other_way(old: str, new: str) -> None:
    query = (ORDERED + NEAR).replace(old, new).replace("@", "INTERVAL 10 MINUTES")
    with pytest.raises(JobInvalid, match=r"ON o.key = p.key AND p.time BETWEEN o.time - INTERVAL"):
        hr.sql(query, orders=ORDERS, payments=PAYMENTS)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELEC", "this is"),
        ("DELETE FROM orders", "one SELECT"),
        ("SELECT 1; SELECT 2", "one SELECT"),
        ("SELECT *", "no FROM"),
        ("SELECT * FROM nowhere", "`nowhere` is none of the query's streams and tables: `orders`"),
        ("SELECT * FROM @ ORDER BY quantity", "`ORDER` has no meaning"),
        ("SELECT DISTINCT key FROM @", "`DISTINCT` has no meaning"),
        ("SELECT p.key FROM @", "`p.key` is not kept behind the join"),
        ("SELECT x.key FROM @", "`x.key` is of no table"),
        ("SELECT count(*) FROM @ GROUP BY product", "cannot be grouped"),
        ("SELECT pieces FROM @", "names a column `pieces`"),
        ("SELECT row_number() OVER (ORDER BY key) FROM @", "windows are not taken"),
        ("SELECT * FROM @ AND 1 = 1", "must meet by the key"),
        ("SELECT * FROM orders o JOIN prices p ON o.product = p.key", "FOR SYSTEM_TIME AS OF"),
        ("SELECT * FROM bought b JOIN prices p ON b.cents = p.cents", "ON left.column = p.key"),
        (ANOTHER_TIME, "write `o.time`"),
        ("SELECT * FROM bought b CROSS JOIN prices p", "another kind"),
        ("SELECT sum(cents) FROM bought", "need a GROUP BY"),
        ("SELECT count(DISTINCT cents) FROM bought GROUP BY customer", "cannot take a row out"),
    ],
)  # fmt: skip
def test_sql_that_has_no_meaning_here_is_a_sentence(query: str, said: str) -> None:
    with pytest.raises(JobInvalid) as refused:
        hr.sql(query.replace("@", AS_OF), orders=ORDERS, prices=PRICES, bought=BOUGHT)
    assert said in str(refused.value)
