"""The parts of a Spark job of one's own, for steps that columns cannot express.

open_session                       a session with the settings that state needs
Input, InputTopics, JobConfig      what its file may say
Inputs                             the records of its inputs
Topic ... LookUp, StreamJoin       tables, a stream that looks up in one, two streams that meet
operate, Spread                    the topology, run over tasks
read_json, write_json              values
"""

from headrace.contracts.time import DurationMs
from headrace.spark_jobs.jobs.config import Input, InputTopics, JobConfig
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.jobs.rows import write_json
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.topology import (
    AggregateStep,
    FilterStep,
    ForeignKeyStep,
    JoinStep,
    LookUp,
    MapStep,
    StreamJoin,
    Topic,
)
from headrace.spark_jobs.read.json_text import read_json
from headrace.spark_jobs.session import open_session
from headrace.spark_jobs.versioned.tables import Plain, Versioned
from headrace.spark_jobs.versioned.totals import Aggregation, Form, reduce

__all__ = [
    "AggregateStep",
    "Aggregation",
    "DurationMs",
    "FilterStep",
    "ForeignKeyStep",
    "Form",
    "Input",
    "InputTopics",
    "Inputs",
    "JobConfig",
    "JoinStep",
    "LookUp",
    "MapStep",
    "Plain",
    "Spread",
    "StreamJoin",
    "Topic",
    "Versioned",
    "open_session",
    "operate",
    "read_json",
    "reduce",
    "write_json",
]
