"""`headrace spark backfill` refuses what it cannot do before Java starts, in one sentence."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.contracts.errors import JobInvalid, SettingsInvalid
from headrace.spark_jobs.cli import spark
from headrace.spark_jobs.cli.how import How
from headrace.spark_jobs.cli.period import period_of
from headrace.spark_jobs.cli.submit import submit_command
from headrace.spark_jobs.jobs.filled import Period

JOB = """\
job: orders-prices
name: priced
servers: 127.0.0.1:9092
checkpoint: checkpoints/priced
inputs:
  prices: {topic: prices}
  orders: {topic: orders}
retention: 1h
sink: {parquet: {folder: priced}}
"""
TABLES = JOB.replace("orders-prices", "orders-customers").replace("  prices:", "  customers:")
WINDOWS = """\
query: |
  SELECT o.key, COUNT(*) AS orders
  FROM orders o JOIN prices FOR SYSTEM_TIME AS OF o.time AS p ON o.key = p.key
  GROUP BY o.key, window(o.time, '1 hour')
name: counted
checkpoint: checkpoints/counted
servers: 127.0.0.1:9092
streams:
  orders: {topic: orders, schema: order_id STRING}
tables:
  prices: {topic: prices, schema: price_cents BIGINT, retention: 1h}
sink: {parquet: {folder: counted}}
"""


def at_ms(*parts: int) -> int:
    """A time of UTC, by year, month and so on."""
    return round(datetime(*parts, tzinfo=UTC).timestamp() * 1_000)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (TABLES, "`orders-customers` does not join a stream as of a table, so its past cannot"),
        (WINDOWS, "this query does not join a stream as of a table, so its past cannot"),
        (
            JOB.replace("{parquet: {folder: priced}}", "{kafka: {topic: priced}}"),
            "a backfill writes rows in the order of their keys, which suits a table alone",
        ),
        (JOB + "release: stream-time\n", "by `release: stream-time` the rows depend on the order"),
        (JOB + "corrections: true\n", "`corrections` needs the records of the last `retention`"),
        (
            JOB.replace("{parquet: {folder: priced}}", "{delta: {folder: priced, mode: upsert}}"),
            "a backfill appends rows, and `mode: upsert` replaces",
        ),
    ],
)
def test_a_job_without_a_past_of_its_own_is_refused(
    tmp_path: Path, text: str, sentence: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(JobInvalid) as refused:
        spark.backfill(file)
    assert sentence in str(refused.value)


def test_a_time_is_utc_unless_it_says_otherwise() -> None:
    assert period_of(None, None) == Period(None, None)
    assert period_of("2026-11-01", "2026-11-01T12:30") == (
        at_ms(2026, 11, 1),
        at_ms(2026, 11, 1, 12, 30),
    )
    assert period_of("2026-11-01T12:30+02:00", "1969-12-31T23:59:59.999Z") == (
        at_ms(2026, 11, 1, 10, 30),
        -1,
    )


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "1700000000000", "12:30"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="`--to` names no time"):
        period_of(None, text)


def test_a_cluster_is_handed_the_period(tmp_path: Path) -> None:
    period = period_of("2026-11-01T12:30+02:00", None)
    command = submit_command(tmp_path / "job.py", None, How("yarn", backfill=period))
    assert command[-3:] == ["--backfill", "--from", "2026-11-01T10:30:00.000+00:00"]
    assert period_of(command[-1], None) == period
