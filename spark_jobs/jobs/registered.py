"""Register the schema of a job's rows when the job starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.contracts.errors import RegistryRefused
from headrace.contracts.serde.asked import Unfit, number_of
from headrace.spark_jobs.read.registry import Client
from headrace.spark_jobs.write.avro import Encode, avro_of, encoding, subject_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headrace.spark_jobs.read.registry import RegistryAccess


def encode_of(topic: str, registry: RegistryAccess, row: StructType) -> Encode:
    """Return the encoder of a topic's rows.

    The registry is asked for the number of their schema, and gets the schema if it lacks it.
    """
    schema, subject = avro_of(topic, row), subject_of(topic)
    client = Client(registry.asked())
    try:
        number = client.patiently(lambda: number_of(subject, schema, client.post))
    except Unfit as error:
        message = (
            f"the schema registry {client.url} does not take the schema of the rows as the next of"
            f" `{subject}` ({error.why}); select columns that fit, or name another topic"
        )
        raise RegistryRefused(message) from error
    return encoding(row, schema, number)
