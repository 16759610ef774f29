"""Flink SQL over the whole way: it deduplicates both topics, and joins as of the orders' own time.

Where its input ends, it reads what the topics hold; then everything is committed. Where its input
goes on, so does the query. It runs in an environment of its own, and in one process of Java.
"""

from __future__ import annotations

from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment

from tests.bench.peers.settings import milliseconds, setting

_RAW = """
CREATE TABLE {name} (
  product STRING, {columns},
  ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
  headers MAP<STRING, BYTES> METADATA,
  arrival AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '{grace_s}' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = '{topic}',
  'properties.bootstrap.servers' = '{servers}', 'properties.group.id' = '{group}',
  'scan.startup.mode' = 'earliest-offset', {input},
  'key.format' = 'raw', 'key.fields' = 'product',
  'value.format' = 'json', 'value.fields-include' = 'EXCEPT_KEY'
)"""
# Watermarks by the record make a delay shorter than those by the clock, five a second. A partition
# is idle when it is to headrace.
_INPUT = {
    "ends": "'scan.bounded.mode' = 'latest-offset'",
    "goes on": (
        "'scan.watermark.emit.strategy' = 'on-event', 'scan.watermark.idle-timeout' = '10 s'"
    ),
}
_PRICED = """
CREATE TABLE priced (
  `key` STRING, product STRING, order_id STRING, quantity BIGINT,
  price_cents BIGINT, total_cents BIGINT, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'
) WITH (
  'connector' = 'kafka', 'topic' = '{sink}', 'properties.bootstrap.servers' = '{servers}',
  'key.format' = 'raw', 'key.fields' = 'key',
  'value.format' = 'json', 'value.fields-include' = 'EXCEPT_KEY',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{group}',
  'properties.transaction.timeout.ms' = '600000'
)"""
# To keep the first by arrival costs least, but records then stay out of order. A table with
# versions drops those. So prices are kept by their time, which also puts them in order.
_ONCE = """
CREATE VIEW {name}_once AS SELECT product, {columns}, ts FROM (
  SELECT *, ROW_NUMBER() OVER (
    PARTITION BY product, CAST(headers['id'] AS STRING) ORDER BY {by}) AS n FROM {name}
) WHERE n = 1"""
# A table has versions once a query keeps the last row of each key by time.
_VERSIONS = """
CREATE VIEW versions AS SELECT product, price_cents, ts FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY product ORDER BY ts DESC) AS n FROM prices_once
) WHERE n = 1"""
_JOIN = """
INSERT INTO priced
SELECT o.product, o.product, o.order_id, o.quantity,
  v.price_cents, o.quantity * v.price_cents, o.ts
FROM orders_once AS o JOIN versions FOR SYSTEM_TIME AS OF o.ts AS v ON o.product = v.product"""


def main() -> None:
    """Run the query to its end, and say so."""
    environment = StreamExecutionEnvironment.get_execution_environment(_configuration())
    tables = StreamTableEnvironment.create(environment)
    told = {
        "servers": setting("BOOTSTRAP_SERVERS"),
        "group": setting("GROUP"),
        "sink": setting("SINK"),
        "grace_s": milliseconds("GRACE_MS") // 1_000,
        "input": _INPUT[setting("INPUT")],
    }
    for name, topic, columns, by in (
        ("orders", setting("SOURCE"), ("order_id STRING", "quantity BIGINT"), "arrival"),
        ("prices", setting("TABLE"), ("price_cents BIGINT",), "ts"),
    ):
        tables.execute_sql(_RAW.format(name=name, topic=topic, columns=", ".join(columns), **told))
        names = ", ".join(column.split()[0] for column in columns)
        tables.execute_sql(_ONCE.format(name=name, columns=names, by=by))
    tables.execute_sql(_VERSIONS)
    tables.execute_sql(_PRICED.format(**told))
    running = tables.execute_sql(_JOIN)
    print("running", flush=True)
    running.wait()
    print("done", flush=True)


def _configuration() -> Configuration:
    configuration = Configuration()
    for name, value in {
        "pipeline.jars": setting("JARS"),
        "pipeline.object-reuse": "true",
        "parallelism.default": setting("PARALLELISM"),
        "taskmanager.numberOfTaskSlots": setting("PARALLELISM"),
        "taskmanager.memory.managed.size": "2g",
        "state.backend.type": "rocksdb",
        "state.backend.rocksdb.predefined-options": "SPINNING_DISK_OPTIMIZED_HIGH_MEM",
        # Each row has a timer or two, and those that wait within a grace fit into memory.
        "state.backend.rocksdb.timer-service.factory": "HEAP",
        "execution.checkpointing.interval": f"{milliseconds('COMMIT_INTERVAL_MS')} ms",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.dir": f"file://{setting('STATE_FOLDER')}/checkpoints",
        "io.tmp.dirs": setting("STATE_FOLDER"),
        "table.exec.state.ttl": "0",
    }.items():
        configuration.set_string(name, value)
    return configuration


main()
