"""Test a pipeline or a query as it runs, without broker, Java or Spark.

    from headrace.testing import check, run

    result = run(pipeline, '''
        # key  time  value
        a      8s    {"id":1}
        a      5s    {"id":2}
        b      60s   {"id":3}
    ''')
    assert shown(result.cleaned) == ['a@5s={"id":2}', 'a@8s={"id":1}']

    run, check           run records through a pipeline or a query; check a table
    load_query           the query of a job's file, in YAML or Python
    Result               the outcome: cleaned, late, dead, decisions, progress
    QueryResult          the outcome of a query: rows, late, dead, latest
    Event                happens between records: crash, rebalance, idle, wait and so on
    read_table, shown    records out of a table, and as a table writes them
    check_conservation   every record is cleaned, dropped, late, dead, merged or held
    check_any_cut        results do not depend on batches, commits and crashes

Strategies for hypothesis are in `headrace.testing.strategies`, which needs it. The operators and
their state are those of the sidecar, and of Spark's processor; a query needs the extra `spark`.
`contracts/semantics/testing.md` lists the parts that are not simulated.
"""

from headrace.testing.invariants import check_any_cut, check_conservation
from headrace.testing.query_result import QueryResult
from headrace.testing.running import AnyPipeline, Input, Result, load_query, run
from headrace.testing.scenarios import check
from headrace.testing.tables import Event, Row, read_table, shown

__all__ = [
    "AnyPipeline",
    "Event",
    "Input",
    "QueryResult",
    "Result",
    "Row",
    "check",
    "check_any_cut",
    "check_conservation",
    "load_query",
    "read_table",
    "run",
    "shown",
]
