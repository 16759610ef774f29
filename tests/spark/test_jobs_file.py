"""A job's file: what it may say, and what is said of one that cannot work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.contracts.errors import JobInvalid, SettingsInvalid
from headrace.spark_jobs.cli.how import DeployMode, How
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.cli.submit import check_deploy_mode, submit_command
from headrace.spark_jobs.connectors import CONNECTORS, ICEBERG, jar_of, packages
from headrace.spark_jobs.jobs.config import inputs_of
from headrace.spark_jobs.jobs.fits import own_column_among
from headrace.spark_jobs.jobs.run import JOBS, find_job, topics_of
from headrace.spark_jobs.observe.metrics import Address
from headrace.spark_jobs.read.schema import schema_of
from headrace.spark_jobs.session import beside

GOOD = """\
job: orders-prices
name: orders-priced
servers: localhost:9092
checkpoint: state/orders-priced
inputs:
  orders: {topic: orders.cleaned, pipeline: orders}
  prices: {topic: prices.cleaned, pipeline: prices}
retention: 1h
sink: {kafka: {topic: orders.priced}}
"""

TO_KAFKA = "{kafka: {topic: orders.priced}}"


def written(folder: Path, text: str) -> Path:
    file = folder / "job.yaml"
    file.write_text(text)
    return file


def test_a_file_says_all_that_a_job_needs(tmp_path: Path) -> None:
    job, config = load_job(written(tmp_path, GOOD))
    assert job is find_job("orders-prices")
    assert list(inputs_of(config)) == ["prices", "orders"], "tables go first"
    assert {topic.name: topic.role for topic in topics_of(config)} == {
        "orders.priced": "cleaned",
        "orders.cleaned.dead": "dead",
        "prices.cleaned.dead": "dead",
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "job.yaml: the file is empty; begin it with `job: orders-prices`"),
        ("- a", "job.yaml:1:1: the file holds a list, and a job is a mapping; begin it with"),
        (GOOD + "join: left\njoin: inner", "job.yaml:11:1: `join` stands here twice, first in"),
        (GOOD.replace("1h", "10:30"), "job.yaml:8:1: retention: `10:30` is not a duration"),
        ("job: [", "this is not YAML"),
        ("name: x", "job.yaml:1:1: `job` and `query` are both missing; add one, such as `job: "),
        ("job: 5", "job.yaml:1:1: job: `job` names no job; write such as `job: orders-prices`"),
        (GOOD.replace("job", "jobs"), "job.yaml:1:1: jobs: `jobs` is not known here; did you mean"),
        ("job: select key from a", "job.yaml:1:1: job: this is SQL; write `query:` in place of"),
        ("job: order-prices", "job.yaml:1:1: job: `order-prices` is none of count-alerts,"),
        ("job: order-prices", "; did you mean `orders-prices`?"),
        (
            GOOD + "query: any",
            "job.yaml:10:1: query: `job` names the job `orders-prices`, and `query` another;",
        ),
        (
            "pipeline: a\noperators: []",
            "job.yaml:1:1: this is the file of a pipeline; run it by `headrace run`",
        ),
        (GOOD.replace("inputs:", "streams:"), "streams: `streams` is not known here; did you mean"),
        (GOOD.replace("servers", "bootstrap.servers"), "not known here; did you mean `servers`?"),
        (
            GOOD.replace("{kafka: {topic: orders.priced}}", "{topic: orders.priced}"),
            "job.yaml:9:8: sink.topic: `topic` is not known here; it is an option of `sink.kafka`",
        ),
        (
            "job: nowhere.at_all",
            "and there is no module `nowhere`, neither installed nor in the folder",
        ),
        ("job: json.decoder", "has no Config and no Row and no VALUES and no transform"),
        (GOOD.replace("retention: 1h", ""), "retention: `retention` is missing; add it"),
        (GOOD.replace("1h", "soon"), "job.yaml:8:1: retention: `soon` is not a duration"),
        (GOOD.replace("1h", "0s"), "job.yaml:8:1: retention: `0` is not more than 0; write more"),
        (
            GOOD + "sinks: 1",
            "job.yaml:10:1: sinks: `sinks` is not known here; did you mean `sink`?",
        ),
        (
            GOOD + "zzz: 1",
            "`zzz` is not known here; known are `job`, `name`, `servers`, `checkpoint`",
        ),
        (GOOD + "records_per_batch: 1", "did you mean `records-per-batch`?"),
        (GOOD.replace("{topic: orders.priced}", "{topik: a}"), "sink.kafka.topik: `topik` is not"),
        (GOOD.replace("topic: orders.cleaned", "topik: a"), "here; did you mean `topic`?"),
        (GOOD.replace("{kafka: {topic: orders.priced}}", "{}"), "a sink is one of kafka, delta"),
        (
            GOOD.replace(TO_KAFKA, "{iceberg: {table: orders}}"),
            "sink.iceberg.table: `orders` does not name a catalog, a database and a table; write",
        ),
        (
            GOOD.replace(TO_KAFKA, "{iceberg: {table: a.b.c, folder: d}}"),
            "sink.iceberg: a table has either a name or a folder; write one of them, such",
        ),
        (GOOD.replace(TO_KAFKA, "{iceberg: {mode: upsert}}"), "has either a name or a folder;"),
        (
            GOOD.replace(TO_KAFKA, "{delta: {table: orders}}"),
            "sink.delta.table: `orders` does not name a database and a table; write such as `sales",
        ),
        (
            GOOD.replace(TO_KAFKA, "{delta: {table: a.b.c.d}}"),
            "sink.delta.table: `a.b.c.d` does not name a database and a table",
        ),
        (
            GOOD.replace(TO_KAFKA, "{delta: {table: sales.orders, folder: d}}"),
            "sink.delta: a table has either a name or a folder; write one of them, such as `{table",
        ),
        (
            GOOD.replace(TO_KAFKA, "{iceberg: {folder: state/orders-priced/}}"),
            "sink.iceberg.folder: `state/orders-priced/` is the folder of the checkpoint; name an",
        ),
        (GOOD.replace("topic: prices.cleaned", "topic: a b"), "job.yaml:7:12: inputs.prices.topic"),
        (
            GOOD + "reader: {kafka.auto.offset.reset: earliest}",
            "`kafka.auto.offset.reset` is what the job decides; remove it",
        ),
        (
            GOOD + "reader: {Kafka.isolation.level: read_uncommitted}",
            "`Kafka.isolation.level` is what the job decides; remove it",
        ),
        (
            GOOD + 'writer: {linger.ms: "5"}',
            "writer.linger.ms: `linger.ms` is what the job decides; remove it",
        ),
        (
            GOOD + "writer: {partitioner: consistent}",
            "`partitioner` is what the job decides; remove it",
        ),
        (GOOD + 'writer: {acks: "1"}', "writer.acks: librdkafka does not take this: "),
        (
            GOOD + "spark: {spark.master: yarn}",
            "spark.spark.master: `spark.master` is what `--master` says; write it there",
        ),
        (
            GOOD + "spark: {spark.submit.deployMode: cluster}",
            "`spark.submit.deployMode` is what `--deploy-mode` says; write it there",
        ),
    ],
)
def test_mistakes_in_a_file_are_said_with_their_place(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(JobInvalid) as caught:
        load_job(written(tmp_path, text))
    assert sentence in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_a_checkpoint_among_the_files_of_a_table_is_refused(tmp_path: Path, kind: str) -> None:
    def loaded(folder: str) -> None:
        load_job(written(tmp_path, GOOD.replace(TO_KAFKA, f"{{{kind}: {{folder: {folder}}}}}")))

    for fits in ("state/orders", "state/orders-priced/table", "states"):
        loaded(fits)
    for around in ("state", "state/", "./state"):
        with pytest.raises(JobInvalid) as caught:
            loaded(around)
        assert (
            f"checkpoint: `state/orders-priced` is below `{around}`, and the upkeep or the readers"
            " of a table take all files there for its own; name a folder elsewhere, or one whose"
            " name begins with `_`"
        ) in str(caught.value)
    hidden = GOOD.replace("state/orders-priced", "state/_checkpoints/orders-priced")
    load_job(written(tmp_path, hidden.replace(TO_KAFKA, f"{{{kind}: {{folder: state}}}}")))


@pytest.mark.parametrize("folder", ["file:/data/{}", "file:///data/{}", "/data//{}/"])
def test_a_folder_is_the_same_by_its_url(tmp_path: Path, folder: str) -> None:
    text = GOOD.replace("state/orders-priced", "/data/state/orders-priced")
    for name, sentence in (("state/orders-priced", "is the folder of"), ("state", "is below")):
        sink = f"{{delta: {{folder: '{folder.format(name)}'}}}}"
        with pytest.raises(JobInvalid, match=sentence):
            load_job(written(tmp_path, text.replace(TO_KAFKA, sink)))


def test_a_misspelt_option_is_not_missing_as_well(tmp_path: Path) -> None:
    with pytest.raises(JobInvalid) as caught:
        load_job(written(tmp_path, GOOD.replace("retention", "retension")))
    (line,) = str(caught.value).splitlines()
    assert line.endswith(
        "job.yaml:8:1: retension: `retension` is not known here; did you mean `retention`?"
    )


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JobInvalid, match="there is no such file"):
        load_job(tmp_path / "missing.yaml")


def test_a_field_with_the_name_of_a_tables_own_column_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job_of_batches.py").write_text(
        "from pydantic import BaseModel\n"
        "from headrace.spark_jobs.jobs.orders_prices import VALUES, Config, transform\n"
        "class Row(BaseModel):\n"
        "    batch: int\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    text = GOOD.replace("orders-prices", "job_of_batches")
    load_job(written(tmp_path, text))
    with pytest.raises(JobInvalid, match=r"job\.yaml:1:1: job: `job_of_batches` has rows with a"):
        load_job(written(tmp_path, text.replace(TO_KAFKA, "{parquet: {folder: rows}}")))


@pytest.mark.parametrize("field", ["checkpoint", "Checkpoint"])
def test_a_field_that_readers_of_parquet_would_not_see_is_refused(
    tmp_path: Path, field: str
) -> None:
    _, config = load_job(written(tmp_path, GOOD.replace(TO_KAFKA, "{delta: {folder: rows}}")))
    assert own_column_among([field], config) is None
    _, config = load_job(written(tmp_path, GOOD.replace(TO_KAFKA, "{parquet: {folder: rows}}")))
    assert "rows with a field `checkpoint`" in (own_column_among([field], config) or "")


def test_every_job_has_rows_and_values_that_spark_can_hold() -> None:
    for name in JOBS:
        job = find_job(name)
        assert schema_of(job.Row).fieldNames()
        inputs = job.Config.model_fields["inputs"].annotation
        assert inputs is not None
        assert set(job.VALUES) <= set(inputs.model_fields), name
        for value in job.VALUES.values():
            assert not isinstance(value, type) or schema_of(value).fieldNames()


def test_a_cluster_is_handed_the_job_and_its_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A session that this process had has chosen a folder with connectors.
    monkeypatch.delenv("SPARK_HOME", raising=False)
    settings = "spark: {spark.driver.memory: 2g, spark.hadoop.fs.s3a.secret.key: secret}"
    file = written(tmp_path, f"{GOOD}{settings}\n")
    _, config = load_job(file)
    command = submit_command(file, config, How("spark://h:7077", once=True, metrics_at=Address(1)))
    assert command[:4] == ["spark-submit", "--master", "spark://h:7077", "--packages"]
    assert command[4].split(",") == list(CONNECTORS)
    assert command[5:7] == ["--conf", "spark.driver.memory=2g"]
    assert command[-4:] == [str(file), "--once", "--metrics-port", "1"]
    assert "secret" not in " ".join(command), "everybody on a machine sees its commands"


def test_a_driver_in_the_cluster_is_sent_its_files_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    settings = (
        "spark: {spark.files: /etc/ca.pem, spark.archives: env.tar.gz#env,"
        " spark.yarn.queue: etl, spark.executor.memory: 2g}"
    )
    file = written(tmp_path, f"{GOOD}{settings}\n")
    how = How("yarn", DeployMode.CLUSTER, metrics_at=Address(9404, "10.0.0.7"))
    _, config = load_job(file)
    command = submit_command(file, config, how)
    assert command[:5] == ["spark-submit", "--master", "yarn", "--deploy-mode", "cluster"]
    assert command[7:13] == [
        *("--files", f"{file},/etc/ca.pem"),
        *("--conf", "spark.archives=env.tar.gz#env"),
        *("--conf", "spark.yarn.queue=etl"),
    ]
    assert command[14:] == ["job.yaml", "--metrics-port", "9404", "--metrics-host", "10.0.0.7"]
    # The driver reads the same file, where these paths name nothing.
    sent = {"spark.submit.deployMode": "cluster"}
    assert beside({}, sent, config.spark) == {"spark.executor.memory": "2g"}
    assert beside({}, {}, config.spark) == config.spark


@pytest.mark.parametrize(
    ("master", "sentence"),
    [
        ("local[2]", "`--deploy-mode cluster` needs a cluster, and `--master local[2]` is this"),
        ("spark://h:7077", "does not work with `--master spark://h:7077`: Spark's own cluster"),
    ],
)
def test_a_driver_that_no_cluster_runs_is_refused(master: str, sentence: str) -> None:
    check_deploy_mode(How(master))
    with pytest.raises(SettingsInvalid, match=re.escape(sentence)):
        check_deploy_mode(How(master, DeployMode.CLUSTER))


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace(TO_KAFKA, "{iceberg: {table: lake.sales.orders}}")
        + "spark: {spark.jars.packages: 'of:a-catalog:1'}\n",
        "import headrace as hr\nhr.run(..., to=hr.iceberg(folder='orders'))\n",
    ],
)
def test_a_cluster_fetches_the_library_of_iceberg_only_for_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    file = written(tmp_path, text)
    config = load_job(file)[1] if "job:" in text else None
    command = submit_command(file, config, How("spark://h:7077", once=True))
    own = ["of:a-catalog:1"] if config else []
    assert command[4].split(",") == [*CONNECTORS, ICEBERG, *own]


def test_libraries_that_spark_has_already_are_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jars").mkdir()
    kafka, avro, delta = CONNECTORS
    (tmp_path / "jars" / jar_of(avro)).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert packages() == f"{kafka},{delta}"
    assert packages([avro]) == ""
