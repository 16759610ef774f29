"""Register the schema of a job's rows when the job starts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.contracts.errors import RegistryRefused
from headrace.contracts.serde.asked import Unfit, number_of
from headrace.spark_jobs.read.registry import Client
from headrace.spark_jobs.write.avro import Encode, avro_of, encoding, frame_of, subject_of
from headrace.spark_jobs.write.row_avro import avro_of_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headrace.spark_jobs.read.registry import RegistryAccess


def encode_of(topic: str, registry: RegistryAccess, row: StructType) -> Encode:
    """Return the encoder of a topic's rows in frames of Spark's."""
    schema = avro_of(topic, row)
    return encoding(row, schema, _number_of(topic, registry, schema))


def encode_rows_of(
    topic: str, registry: RegistryAccess, row: StructType
) -> Callable[[pa.StructArray], pa.BinaryArray]:
    """Return the encoder of a topic's rows in columns of Arrow's."""
    number = _number_of(topic, registry, avro_of(topic, row))
    return partial(avro_of_rows, frame=frame_of(number))


def _number_of(topic: str, registry: RegistryAccess, schema: str) -> int:
    """Return the number of a topic's schema; the registry gets the schema if it lacks it."""
    subject = subject_of(topic)
    client = Client(registry.asked())
    try:
        return client.patiently(lambda: number_of(subject, schema, client.post))
    except Unfit as error:
        message = (
            f"the schema registry {client.url} does not take the schema of the rows as the next of"
            f" `{subject}` ({error.why}); select columns that fit, or name another topic"
        )
        raise RegistryRefused(message) from error
