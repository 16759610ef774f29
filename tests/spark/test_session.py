"""The settings of a session: ours, those of spark-submit and those of a job."""

from __future__ import annotations

from headrace.spark_jobs.session import beside

EXTENSIONS, CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"
PACKAGES, MEMORY = "spark.jars.packages", "spark.driver.memory"
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
