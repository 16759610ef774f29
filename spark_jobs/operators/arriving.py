"""Records on their way to their tasks: Python finds the unreadable ones where it bundles them.

Spark's own check makes a parser for each value. The bundles are made in Python anyway.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.dead_letter import INTAKE, DeadLetter, dead_headers
from headrace.contracts.decision import Reason
from headrace.contracts.record import Record
from headrace.spark_jobs.headers import decode_headers, encode_headers
from headrace.spark_jobs.operators.leaving import Leaving
from headrace.spark_jobs.read.avro_columns import PlainRecord, schemas_of
from headrace.spark_jobs.read.decode import KEYLESS
from headrace.spark_jobs.read.json_text import JsonCheck
from headrace.spark_jobs.read.registry import Asked, as_json, plain_record_of
from headrace.spark_jobs.shapes import DEAD
from headrace.spark_jobs.write.row_json import json_of

if TYPE_CHECKING:
    from headrace.spark_jobs.versioned.records import Integers

APART = "spark.headrace.apart"
"""The setting of a session by which each stage reads its own inputs.

Spark knows topics by their order in a plan, which is another one in checkpoints of before.
"""
_ORIGIN = ("headers", "topic", "partition", "offset")


@dataclass(frozen=True)
class RegisteredCheck:
    """Makes JSON of values that name their schemas in a registry, and checks it."""

    check: JsonCheck
    registry: Asked

    def read(self, values: pa.BinaryArray) -> tuple[pa.BinaryArray, dict[int, str]]:
        """Return each readable value as JSON, and by index the problems of the others."""
        problems: dict[int, str] = {}
        made: list[pa.BinaryArray] = []
        places: list[Integers] = []
        is_left = np.ones(len(values), np.bool_)
        for own, plain in self._plain_among(values):
            fields, are_whole = plain.read(values, own)
            whole, fields = own[are_whole], fields.filter(pa.array(are_whole))
            found = self.check.problems_in(fields)
            problems |= {int(whole[index]): problem for index, problem in found.items()}
            is_left[whole] = False
            places.append(whole)
            made.append(json_of(fields))
        left = np.flatnonzero(is_left)
        read, found = self._read_each(values.take(pa.array(left)).to_pylist())
        problems |= {int(left[index]): problem for index, problem in found.items()}
        made.append(pa.array(read, values.type))
        order = np.argsort(np.concatenate([*places, left]))
        has_problem = np.zeros(len(values), np.bool_)
        has_problem[[*problems]] = True
        in_order = pa.concat_arrays(made).take(pa.array(order))
        return pc.if_else(pa.array(has_problem), values, in_order), problems

    def _plain_among(self, values: pa.BinaryArray) -> Iterator[tuple[Integers, PlainRecord]]:
        """Yield the places of values of each schema of plain fields, and the schema."""
        numbers = schemas_of(values)
        for number in np.unique(numbers[numbers >= 0]):
            own = np.flatnonzero(numbers == number)
            plain = plain_record_of(values[int(own[0])].as_py(), self.registry)
            if plain is not None:
                yield own, plain

    def _read_each(
        self, values: Sequence[bytes | None]
    ) -> tuple[list[bytes | None], dict[int, str]]:
        """Do as `read` with any values, one by one."""
        read = [as_json(value, self.registry) for value in values]
        made = [one.json for one in read]
        problems = self.check.problems(made)
        return made, problems | {
            index: one.problem for index, one in enumerate(read) if one.problem is not None
        }


@dataclass(frozen=True)
class Arriving:
    """The records of all inputs; those of inputs with a check have not been checked yet."""

    records: DataFrame
    checks: Checks = field(default_factory=dict)
    """By input; without a check of its values, only its keys are looked at."""
    leaving: Leaving | None = None
    """The way of results to a sink that takes no rows."""
    frames: Sequence[DataFrame] = ()
    """The records of each input, if a stage may read those alone that it takes."""

    def of(self, inputs: Iterable[int]) -> DataFrame:
        """Return the records of some inputs."""
        chosen = sorted(inputs)
        if self.frames and self.records.sparkSession.conf.get(APART, None) is not None:
            return together([self.frames[number] for number in chosen])
        # Spark reads the others too: where records stream, it keeps a part that a filter empties.
        return self.records.where(F.col("input").isin(*chosen))


Checks = Mapping[int, JsonCheck | RegisteredCheck | None]


def together(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the records of several frames in one."""
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames)


def marked(batch: pa.RecordBatch, checks: Checks) -> pa.RecordBatch:
    """Give unreadable records a verdict in `aside`, and the headers of a dead letter."""
    batch, problems = _read(batch, checks)
    if not problems:
        return batch
    names = batch.schema.names
    asides = batch["aside"].to_pylist() if "aside" in names else [None] * len(batch)
    columns = {name: batch[name].to_pylist() for name in _ORIGIN}
    for place, (reason, text) in problems.items():
        asides[place] = json.dumps({"verdict": DEAD, "reason": reason.value})
        packed, topic, partition, offset = (columns[name][place] for name in _ORIGIN)
        own = () if packed is None else decode_headers(packed)
        record = Record(None, None, 0, own, topic, partition, offset)
        letter = DeadLetter(record, INTAKE, reason, text)
        columns["headers"][place] = encode_headers(dead_headers(letter))
    batch = _with(batch, "headers", pa.array(columns["headers"], pa.string()))
    return _with(batch, "aside", pa.array(asides, pa.string()))


def _read(
    batch: pa.RecordBatch, checks: Checks
) -> tuple[pa.RecordBatch, dict[int, tuple[Reason, str]]]:
    """Return the batch with readable values as they are kept.

    Return also the reason and the problem of each unreadable record by its place in the batch.
    """
    found: dict[int, tuple[Reason, str]] = {}
    inputs = batch["input"].to_numpy()
    keyless = batch["key"].is_null().to_numpy(zero_copy_only=False)
    for number, check in checks.items():
        own = inputs == number
        for place in np.flatnonzero(own & keyless).tolist():
            found[place] = (Reason.NULL_KEY, KEYLESS)
        own &= ~keyless
        if check is None or not own.any():
            continue
        places = np.flatnonzero(own)
        values = batch["value"] if own.all() else batch["value"].take(pa.array(places))
        if isinstance(check, RegisteredCheck):
            made, problems = check.read(values)
            read = pc.replace_with_mask(batch["value"], own, made)
            batch = _with(batch, "value", read)
        else:
            problems = check.problems(values.to_pylist())
        for index, problem in problems.items():
            found[int(places[index])] = (Reason.UNDECODABLE, problem)
    return batch, found


def _with(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    if name not in batch.schema.names:
        return batch.append_column(name, column)
    return batch.set_column(batch.schema.get_field_index(name), name, column)
