"""The settings of a session: ours, those of spark-submit and those of a job."""

from __future__ import annotations

from pyspark.sql import SparkSession

from headrace.spark_jobs.seams import java_of
from headrace.spark_jobs.session import beside

EXTENSIONS, CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"
PACKAGES, MEMORY = "spark.jars.packages", "spark.driver.memory"
PLANS = 200
OURS = {EXTENSIONS: "delta", CATALOG: "of-delta", PACKAGES: "kafka,iceberg", MEMORY: "1g"}


def test_extensions_and_libraries_of_a_job_stand_beside_ours() -> None:
    settings = {EXTENSIONS: "theirs", PACKAGES: "aws,kafka", MEMORY: "2g"}
    assert beside(OURS, {}, settings) == {
        EXTENSIONS: "theirs,delta",
        CATALOG: "of-delta",
        PACKAGES: "aws,kafka,iceberg",
        MEMORY: "2g",
    }


def test_extensions_and_the_catalog_that_spark_submit_was_given_stay() -> None:
    submitted = {EXTENSIONS: "theirs", CATALOG: "of-iceberg", MEMORY: "2g"}
    found = beside(OURS, submitted, {})
    assert found == {**OURS, EXTENSIONS: "theirs,delta", CATALOG: "of-iceberg"}
    assert beside(OURS, submitted, {CATALOG: "own"})[CATALOG] == "own"


def test_a_session_keeps_the_classes_of_more_than_a_hundred_plans(spark: SparkSession) -> None:
    java = java_of(spark)
    codegen = java.org.apache.spark.sql.catalyst.expressions.codegen
    comments = java.org.apache.spark.api.python.PythonUtils.toScalaMap(java.java.util.HashMap())
    compilations = java.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()

    def compiled_by(plans: range) -> int:
        before = int(compilations.getCount())
        for number in plans:
            body = f"public Object generate(Object[] references) {{ return {number}; }}"
            codegen.CodeGenerator.compile(codegen.CodeAndComment(body, comments))
        return int(compilations.getCount()) - before

    assert compiled_by(range(PLANS)) == PLANS
    assert compiled_by(range(PLANS)) == 0
