"""A query's file is the query that Python would write, or says what is wrong with a line."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.cli.query_job import described
from headrace.spark_jobs.jobs.config import inputs_of
from headrace.spark_jobs.jobs.stamp import options_of
from headrace.spark_jobs.queries.compiled import QueryJob
from headrace.spark_jobs.queries.file import query_schema
from headrace.spark_jobs.queries.public import Sink
from tests.architecture.source import ROOT

GOOD = """\
query: |
  SELECT o.key, order_id, quantity * price_cents AS total_cents
  FROM orders o LEFT JOIN prices FOR SYSTEM_TIME AS OF o.time AS p ON o.key = p.key
name: priced
servers: localhost:9092
checkpoint: checkpoints/priced
streams:
  orders: {topic: orders.cleaned, schema: "order_id STRING, quantity BIGINT"}
tables:
  prices: {topic: prices.cleaned, schema: price_cents BIGINT, retention: 30d, pipeline: null}
sink: {delta: {folder: tables/priced, mode: upsert}}
every: 5s
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "job.yaml"
    file.write_text(text)
    return file


def test_a_file_is_the_query_that_python_would_write(tmp_path: Path) -> None:
    job, config = load_job(written(tmp_path, GOOD))
    orders = hr.stream("orders.cleaned", "order_id STRING, quantity BIGINT")
    prices = hr.table("prices.cleaned", "price_cents BIGINT", retention="30d", pipeline=None)
    wanted = orders.join_as_of(prices, how="left")
    assert isinstance(job, QueryJob)
    assert job.query == wanted.select("key", "order_id", "quantity * price_cents AS total_cents")
    assert {name: one.pipeline for name, one in inputs_of(config).items()} == {
        "table": None,
        "stream": "orders",
    }
    assert config.every_ms == 5_000
    assert config.sink.delta is not None
    assert config.sink.delta.mode == "upsert"


@pytest.mark.parametrize(
    ("sink", "to"),
    [
        (
            "{iceberg: {table: lake.sales.orders, mode: upsert}}",
            hr.iceberg("lake.sales.orders", mode="upsert"),
        ),
        ("{delta: {table: sales.orders, mode: scd2}}", hr.delta(table="sales.orders", mode="scd2")),
        ("{delta: {folder: tables/orders}}", hr.delta("tables/orders")),
    ],
)
def test_a_table_is_the_sink_that_python_would_name(tmp_path: Path, sink: str, to: Sink) -> None:
    text = GOOD.replace("{delta: {folder: tables/priced, mode: upsert}}", sink)
    job, config = load_job(written(tmp_path, text))
    assert isinstance(job, QueryJob)
    _, same = described(job.query, to=to, name="priced", servers="a:1", checkpoint="checkpoints")
    assert config.sink == same.sink


def test_a_table_in_a_folder_is_noted_in_a_checkpoint_as_it_always_was(tmp_path: Path) -> None:
    _, config = load_job(written(tmp_path, GOOD))
    assert options_of(config)["sink"]["delta"] == {"folder": "tables/priced", "mode": "upsert"}


TABLE = """\
query: SELECT key, name FROM customers
name: customers
servers: localhost:9092
checkpoint: checkpoints/customers
tables: {customers: {topic: customers.cleaned, schema: name STRING}}
sink: {kafka: {topic: customers}}
"""
HISTORY = TABLE.replace("kafka: {topic: customers}", "delta: {folder: history, mode: scd2}")


@pytest.mark.parametrize(
    ("text", "updates"),
    [
        (TABLE, "last"),
        (TABLE + "updates: last\n", "last"),
        (TABLE + "updates: each\n", "each"),
        (HISTORY, "each"),
        (HISTORY + "updates: each\n", "each"),
        (GOOD, None),
    ],
)
def test_a_table_has_updates_and_a_stream_has_none(
    tmp_path: Path, text: str, updates: str | None
) -> None:
    _, config = load_job(written(tmp_path, text))
    assert options_of(config).get("updates") == updates


def test_an_option_that_a_file_leaves_out_may_be_in_the_checkpoint(tmp_path: Path) -> None:
    _, config = load_job(written(tmp_path, GOOD))
    assert "tasks" not in config.model_fields_set
    assert config.tasks == 8
    _, config = load_job(written(tmp_path, GOOD + "tasks: 4\n"))
    assert "tasks" in config.model_fields_set


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take what the file's variables are on this machine away."""
    for name in ("BROKER", "PASSWORD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)


WITH_VARIABLES = GOOD.replace("localhost:9092", '"${BROKER}:9092,b:1"') + (
    "writer: {sasl.password: '${PASSWORD}'}\n"
)


@pytest.mark.usefixtures("unset")
def test_variables_stand_for_what_differs_from_place_to_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("s${NOT}\n")
    monkeypatch.setenv("BROKER", "here")
    monkeypatch.setenv("PASSWORD_FILE", str(tmp_path / "secret"))
    _, config = load_job(written(tmp_path, WITH_VARIABLES))
    assert config.servers == "here:9092,b:1"
    assert config.writer == {"sasl.password": "s${NOT}"}


@pytest.mark.usefixtures("unset")
def test_a_variable_without_a_value_is_a_sentence_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD_FILE", str(tmp_path / "none"))
    with pytest.raises(JobInvalid) as refused:
        load_job(written(tmp_path, WITH_VARIABLES))
    first, second = str(refused.value).splitlines()[-2:]
    assert first.partition("job.yaml:")[2].startswith("5:1: servers: the variable BROKER is not")
    assert "none` cannot be read (No such file or directory)" in second
    monkeypatch.setenv("PASSWORD", "x")
    monkeypatch.setenv("BROKER", "here")
    with pytest.raises(JobInvalid, match="PASSWORD_FILE and PASSWORD are both set"):
        load_job(written(tmp_path, WITH_VARIABLES))


def test_a_misspelt_query_is_one_problem(tmp_path: Path) -> None:
    with pytest.raises(JobInvalid) as refused:
        load_job(written(tmp_path, GOOD.replace("query:", "sql:")))
    assert len(str(refused.value).splitlines()) == 1
    assert refused.value.exit_code == 2


def test_a_file_may_say_that_its_job_is_a_query(tmp_path: Path) -> None:
    job, _ = load_job(written(tmp_path, "job: query\n" + GOOD))
    assert isinstance(job, QueryJob)


def test_a_column_with_the_name_of_a_tables_own_is_refused_before_a_session(tmp_path: Path) -> None:
    text = GOOD.replace("total_cents", "Valid_To")
    load_job(written(tmp_path, text))
    load_job(
        written(
            tmp_path, text.replace("delta: {folder: tables/priced, mode: upsert}", "console: {}")
        )
    )
    with pytest.raises(
        JobInvalid, match=r"job\.yaml: `query` has rows with a field `valid_to`, and"
    ):
        load_job(written(tmp_path, text.replace("upsert", "scd2")))
    with pytest.raises(JobInvalid, match="rows with a field `batch`, and a table has a column of"):
        load_job(written(tmp_path, GOOD.replace("total_cents", "batch")))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (GOOD.replace("query: |", "query: |\n  WITH"), "job.yaml:1:1: query: this is not SQL"),
        (
            GOOD.replace("query:", "sql:"),
            "job.yaml:1:1: sql: `sql` is not known here; did you mean `query`?",
        ),
        (
            GOOD[GOOD.index("name:") :],
            "query: `query` is missing; add it, such as `query: SELECT",
        ),
        (
            GOOD.replace("schema: p", "ddl: p"),
            "job.yaml:10:35: tables.prices.ddl: `ddl` is not known here; did you mean `schema`?",
        ),
        (
            GOOD + "retention: 1d",
            "retention: `retention` is not known here; it is an option of `tables.NAME`",
        ),
        (
            GOOD.replace("mode: upsert}", "mode: upsert}, every: 5s"),
            "sink.every: `every` is not known here; it is an option of the job itself",
        ),
        (
            GOOD.replace(", pipeline: null}", ", key: a}"),
            "tables.prices.key: `key` is not known here; known are `topic`, `pipeline`, `schema`",
        ),
        (
            GOOD.replace(
                '{topic: orders.cleaned, schema: "order_id STRING, quantity BIGINT"}', "a"
            ),
            "streams.orders: `a` is not a mapping of options; write `orders: {topic: ",
        ),
        (GOOD.replace("  orders:", "  order:"), "query: `orders AS o` is none of the query's"),
        (GOOD.replace("retention", "retension"), "job.yaml:10:63: tables.prices.retension: "),
        (GOOD.replace("retention: 30d, ", ""), "query: the stream `orders.cleaned` joined as of"),
        (GOOD.replace("name: priced\n", ""), "`name` is missing"),
        (GOOD.replace("prices.cleaned", "orders.cleaned"), "`orders.cleaned` is the input"),
        (
            GOOD.replace("  prices: {", "  orders: {"),
            "job.yaml:9:1: tables: `orders` is a stream and a table; give one of them another name",
        ),
        (GOOD + "updates: last", "the rows of this query are those of a stream; remove it"),
        (HISTORY + "updates: last", "`updates`: `mode: scd2` keeps a row for each update, and"),
        (TABLE + "updates: some", "job.yaml:7:1: updates: `some` is none of the choices; write"),
    ],
)
def test_a_wrong_file_is_a_sentence_with_its_place(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(JobInvalid) as refused:
        load_job(written(tmp_path, text))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "option", ["corrections", "cold_history", "cold-history", "release", "inputs"]
)
def test_an_option_that_the_query_decides_is_refused_beside_it(option: str) -> None:
    prices = hr.table("prices.cleaned", "price_cents BIGINT", retention="30d")
    priced = hr.stream("orders.cleaned", "order_id STRING").join_as_of(prices)
    said = {"name": "x", "servers": "here:1", "checkpoint": "c"}
    described(priced, to=hr.console(), **said)
    with pytest.raises(
        JobInvalid, match=f"`{option.replace('-', '_')}` is no option of `run`: the"
    ):
        described(priced, to=hr.console(), **said, **{option: True})


@pytest.mark.parametrize("name", ["history", "grace", "corrections", "query", "spark"])
def test_a_file_gives_a_table_any_name(tmp_path: Path, name: str) -> None:
    text = GOOD.replace("JOIN prices", f"JOIN {name}").replace("  prices: {", f"  {name}: {{")
    job, _ = load_job(written(tmp_path, text))
    wanted, _ = load_job(written(tmp_path, GOOD))
    assert isinstance(job, QueryJob)
    assert isinstance(wanted, QueryJob)
    assert job.query == wanted.query


def test_the_schema_is_what_the_models_say() -> None:
    kept = (ROOT / "contracts/schemas/query.schema.json").read_text("utf-8")
    assert kept == query_schema(), "run `make schema`"
