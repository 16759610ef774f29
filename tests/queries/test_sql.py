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
OWNED = "bought b JOIN owners c ON b.customer = c.key"
THIRD_BY_KEY = (
    "SELECT * FROM bought b LEFT JOIN owners c ON b.key = c.key JOIN prices p ON c.key = p.key"
)
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


def test_all_columns_of_one_side_are_selected() -> None:
    joined = ORDERS.join_as_of(PRICES, on="product")
    of_both = hr.sql("SELECT p.*, O.* FROM @".replace("@", AS_OF), orders=ORDERS, prices=PRICES)
    assert of_both == joined.select("price_cents", "order_id", "product", "quantity")
    keyed = ORDERS.select("key", "product", "quantity")
    of_one = hr.sql("SELECT 1 AS one, o.* FROM @".replace("@", AS_OF), orders=keyed, prices=PRICES)
    assert of_one == keyed.join_as_of(PRICES, on="product").select(
        "1 AS one", "product", "quantity"
    )
    alone = hr.sql("SELECT b.* FROM b", b=BOUGHT.select("key", "cents"))
    assert alone.columns == ("key", "cents")


def test_all_columns_that_only_spark_knows_are_refused() -> None:
    with pytest.raises(JobInvalid, match=r"`b\.\*` is columns that Spark alone knows; name them"):
        hr.sql("SELECT b.* FROM b", b=BOUGHT.select("cents * 2"))


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


def test_a_grace_of_nothing_is_a_grace() -> None:
    query = "SELECT * FROM @".replace("@", AS_OF)
    found = hr.sql(query, orders=ORDERS, prices=PRICES, grace=0)
    assert found == ORDERS.join_as_of(PRICES, on="product", grace=0)
    assert found != hr.sql(query, orders=ORDERS, prices=PRICES)
    for waits in ({"grace": "1s"}, {"corrections": True}, {"history": "folder"}):
        with pytest.raises(JobInvalid, match="is of a stream that is joined, and none is here"):
            hr.sql("SELECT * FROM b", b=BOUGHT, **waits)


def test_a_table_by_the_name_of_an_option_is_refused() -> None:
    query = "SELECT * FROM orders o JOIN history FOR SYSTEM_TIME AS OF o.time AS h ON o.key = h.key"
    with pytest.raises(JobInvalid, match="`history` is an option of `sql`, and not the table `pri"):
        hr.sql(query, orders=ORDERS, history=PRICES)  # type: ignore[arg-type]


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


def test_a_group_has_a_key_of_its_own() -> None:
    by_key = "SELECT b.key, max(b.key) AS last FROM bought b GROUP BY b.key"
    wanted = BOUGHT.group_by("key").agg(hr.max("key")).select("key", "max_key AS last")
    assert hr.sql(by_key, bought=BOUGHT) == wanted
    of_group = hr.sql("SELECT key, count(*) AS n FROM bought GROUP BY customer", bought=BOUGHT)
    assert of_group == BOUGHT.group_by("customer").agg(hr.count()).select("key", "count AS n")


def test_names_beyond_ascii_have_backticks_within_an_expression() -> None:
    weighed = hr.table("weighed", "`größe` BIGINT, `2nd` BIGINT", pipeline=None)
    whole = hr.sql("SELECT `größe`, `2nd` AS `zweite` FROM w", w=weighed)
    assert [str(step) for step in whole.steps] == ["select(größe, `2nd` AS zweite)"]
    renamed = hr.sql("SELECT `größe` AS g, 1 AS `höhe` FROM w", w=weighed)
    assert [str(step) for step in renamed.steps] == ["select(`größe` AS g, 1 AS `höhe`)"]
    least = hr.sql("SELECT min(`größe`) + 1 AS m FROM w GROUP BY `größe`", w=weighed)
    assert [str(step) for step in least.steps] == ["select(`min_größe` + 1 AS m)"]
    assert least.columns == ("m",)


def test_values_are_collected() -> None:
    found = hr.sql("SELECT collect_list(cents) AS all FROM b GROUP BY customer", b=BOUGHT)
    wanted = BOUGHT.group_by("customer").agg(hr.collect("cents"))
    assert found == wanted.select("collect_cents AS all")


def test_expressions_stay_as_they_were_written() -> None:
    found = hr.sql(
        "SELECT b.customer -- who\n , transform(array(1), z -> z + b.cents) AS `more`,"
        " to_char(b.cents, '999.99') euros, 'ü😀, b.x' AS face, b.cents+1L AS next"
        " FROM bought b WHERE b.cents IS DISTINCT FROM 1;",
        bought=BOUGHT,
    )
    wanted = BOUGHT.filter("cents IS DISTINCT FROM 1").select(
        "customer",
        "transform(array(1), z -> z + cents) AS more",
        "to_char(cents, '999.99') AS euros",
        "'ü😀, b.x' AS face",
        "cents+1L AS next",
    )
    assert found == wanted


def test_a_dot_is_behind_a_table_or_behind_a_struct() -> None:
    homes = hr.table("homes.cleaned", "home STRUCT<city: STRING, rooms: INT>")
    found = hr.sql("SELECT home.city, h.home.rooms AS rooms FROM homes h", homes=homes)
    assert found == homes.select("home.city", "home.rooms AS rooms")
    grouped = hr.sql("SELECT sum(home.rooms) AS r FROM homes GROUP BY `key`", homes=homes)
    selected = homes.select("*", "home.rooms AS _0").group_by("key")
    assert grouped == selected.agg(hr.sum("_0").alias("sum_0")).select("sum_0 AS r")


def test_a_third_table_meets_by_what_the_row_keeps() -> None:
    titles = hr.table("titles.cleaned", "title STRING")
    query = (
        "SELECT * FROM bought b JOIN customers c ON b.customer = c.key"
        " JOIN titles t ON c.segment = t.key"
    )
    found = hr.sql(query, bought=BOUGHT, customers=CUSTOMERS, titles=titles)
    assert found == BOUGHT.join_on(CUSTOMERS, "customer").join_on(titles, "segment")
    by_key = query.replace("b.customer", "b.key").replace("c.segment", "c.key")
    found = hr.sql(by_key, bought=BOUGHT, customers=CUSTOMERS, titles=titles)
    assert found == BOUGHT.join(CUSTOMERS).join(titles)


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
    "query",
    [
        ORDERED.replace("*", "o.time") + NEAR,
        ORDERED + NEAR + " WHERE o.time > '2026-01-01'",
        ORDERED.replace("*", "count(*)") + NEAR + " GROUP BY product, window(o.time, '1 hour')",
    ],
)
def test_a_row_of_two_streams_has_one_time(query: str) -> None:
    query = query.replace("@", "INTERVAL 10 MINUTES")
    with pytest.raises(JobInvalid, match="a row of two streams has the later of their times"):
        hr.sql(query, orders=ORDERS, payments=PAYMENTS)
    hr.sql(
        query.replace("o.time >", "time >")
        .replace("(o.time,", "(time,")
        .replace("SELECT o.time", "SELECT time"),
        orders=ORDERS,
        payments=PAYMENTS,
    )


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
        ("SELECT count(*) FROM @ GROUP BY product", "name one window of time beside the columns"),
        ("SELECT count(*) FROM @ GROUP BY product, window(time)", "is no window of a stream"),
        ("SELECT count(*) FROM @ GROUP BY product, window(key, '1 hour')", "is no window"),
        ("SELECT count(*) FROM @ GROUP BY product, window(time, 'soon')", "is no window"),
        ("SELECT count(*) FROM @ GROUP BY product, window(p.time, '1 hour')", "`p.time` is not"),
        ("SELECT count(*) FROM @ GROUP BY product, window(x.time, '1 hour')", "`x.time` is of no"),
        ("SELECT pieces FROM @", "names a column `pieces`"),
        ("SELECT x.* FROM @", "`x.*` is of no table"),
        ("SELECT o.* EXCEPT (quantity) FROM @", "is all columns, which stand alone in SELECT"),
        ("SELECT count(b.*) FROM bought b GROUP BY customer", "`b.*` is all columns, which stand"),
        ("SELECT count(*) FROM bought GROUP BY 1", "takes names of columns, not 1"),
        ("SELECT row_number() OVER (ORDER BY key) FROM @", "windows are not taken"),
        ("SELECT * FROM @ AND 1 = 1", "must meet by the key"),
        ("SELECT * FROM orders o JOIN prices p ON o.product = p.key", "FOR SYSTEM_TIME AS OF"),
        ("SELECT * FROM bought b JOIN prices p ON b.cents = p.cents", "ON left.column = p.key"),
        (ANOTHER_TIME, "write `o.time`"),
        ("SELECT * FROM bought b CROSS JOIN prices p", "another kind"),
        ("SELECT sum(cents) FROM bought", "need a GROUP BY"),
        ("SELECT count(DISTINCT cents) FROM bought GROUP BY customer", "cannot take a row out"),
        ("SELECT count(*) FILTER (WHERE cents > 1) FROM bought GROUP BY customer", "take a row"),
        ("SELECT count() FROM bought GROUP BY customer", "cannot take a row out"),
        ("SELECT sum(*) FROM bought GROUP BY customer", "as only `count` may be; name one"),
        ("SELECT max(*) FROM bought GROUP BY customer", "`MAX(*)` is of no column"),
        ("SELECT sum(count(cents)) FROM bought GROUP BY customer", "cannot take a row out"),
        ("SELECT count(*) FROM bought GROUP BY customer WITH ROLLUP", "name columns alone"),
        ("SELECT customer FROM bought HAVING cents > 1", "HAVING need a GROUP BY"),
        ("SELECT b.key, count(*) FROM bought b GROUP BY customer", "`b.key` is of one row"),
        ("SELECT count(*) FROM bought b GROUP BY customer HAVING b.time > 1", "`b.time` is of one"),
        ("SELECT b.key, count(*) FROM bought b GROUP BY b.key, customer", "`b.key` is of one row"),
        (
            "SELECT o.time, count(*) FROM orders o GROUP BY o.time, window(o.time, '1 hour')",
            "`o.time` is of one row, and a group has many; write `time` for the group's own, or",
        ),
        ("SELECT * FROM other.bought", "write `bought`"),
        ("SELECT * FROM bought TABLESAMPLE (10 PERCENT)", "write `bought`"),
        ("SELECT * FROM bought VERSION AS OF 3", "write `bought`"),
        ("SELECT * FROM bought AS b(who, cents)", "write `bought`"),
        ("SELECT * FROM bought b JOIN owners c ON x.customer = c.key", "`x.customer` is of no"),
        ("SELECT count(c.key) FROM ! GROUP BY name", "`c.key` is not kept"),
        ("SELECT * FROM ! JOIN prices p ON c.key = p.key", "`c.key`, which is not kept behind"),
        (THIRD_BY_KEY, "`c.key`, which is not kept behind its own join"),
    ],
)  # fmt: skip
def test_sql_that_has_no_meaning_here_is_a_sentence(query: str, said: str) -> None:
    with pytest.raises(JobInvalid) as refused:
        hr.sql(
            query.replace("@", AS_OF).replace("!", OWNED),
            orders=ORDERS,
            prices=PRICES,
            bought=BOUGHT,
            owners=CUSTOMERS,
        )
    assert said in str(refused.value)
