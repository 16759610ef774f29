"""A job that writes a Delta table by its name: by one command again, over a metastore."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.fixtures import SharedKafka
from tests.spark.tables import live_rows
from tests.spark.test_scd2_job import Customers, customer

SETTINGS = """\
spark:
  spark.sql.catalogImplementation: hive
  spark.sql.warehouse.dir: warehouse
  spark.hadoop.javax.jdo.option.ConnectionURL: "jdbc:derby:;databaseName=metastore;create=true"
"""


class Named(Customers):
    """The page's table, by its name and by its last rows alone."""

    def settle(self) -> None:
        """Give the job its table, and a metastore that keeps it."""
        self.replace("key, name, segment", "key, segment")
        self.replace("{folder: tables/customers, mode: scd2}", "{table: default.c, mode: upsert}")

    @property
    def kept(self) -> list[tuple[str, str]]:
        """Key and segment of each row."""
        rows = live_rows(self.folder / "warehouse" / "c")
        return sorted((row["key"], row["segment"]) for row in rows)


@pytest.mark.long("spark", why="it runs a job five times")
def test_a_table_by_its_name_is_found_by_each_start_and_refused_for_a_new_column(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    customers = Named(kafka.clients, tmp_path)
    customers.settle()
    customers.send(customer(b"ann", 10, "gold"), customer(b"bob", 10, "tin"))
    forgotten = customers.start()
    assert forgotten.returncode == 2, forgotten.stderr
    assert "`default.c` is not there, and Spark's own catalog forgets" in forgotten.stderr
    customers.replace("sink:", f"{SETTINGS}sink:")
    customers.run()
    assert customers.kept == [("ann", "gold"), ("bob", "tin")]
    customers.send(customer(b"ann", 20, "iron"), customer(b"bob", 20, None))
    for _ in range(2):
        customers.run()
        assert customers.kept == [("ann", "iron")]

    # Another query writes to the same table, and has a column more.
    customers.replace("-history\n", "-wider\n")
    customers.replace("key, segment", "key, name, segment")
    refused = customers.start()
    assert refused.returncode == 2, refused.stderr
    assert "`default.c` lacks the column `name`, which each row has; add it" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert customers.kept == [("ann", "iron")]
