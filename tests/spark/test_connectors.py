"""The connectors of each version of Spark, and the sentence about a version without any."""

from __future__ import annotations

import pytest

from headrace.contracts.errors import SettingsInvalid
from headrace.spark_jobs.connectors import CONNECTORS, ICEBERG, OF_VERSIONS, connectors_of

NEXT = f"4.{max(int(version.split('.')[1]) for version in OF_VERSIONS) + 1}"


@pytest.mark.parametrize("version", OF_VERSIONS)
def test_a_version_takes_connectors_of_its_own(version: str) -> None:
    own = connectors_of(f"{version}.7")
    others = [other for name, other in OF_VERSIONS.items() if name != version]
    assert not any(set(own) & set(other) for other in others)
    assert all(f":{version}." in one for one in (own.kafka, own.avro))


def test_the_installed_spark_decides() -> None:
    assert (*CONNECTORS, ICEBERG) in OF_VERSIONS.values()


def test_a_version_without_connectors_is_refused_in_a_sentence() -> None:
    with pytest.raises(SettingsInvalid, match=r"runs on Spark 4\.0 and 4\.1, and PySpark is"):
        connectors_of(f"{NEXT}.0")
