"""Test a pipeline as it runs, without broker, Java or Spark.

    from headrace.testing import check, run

    result = run(pipeline, '''
        # key  time  value
        a      8s    {"id":1}
        a      5s    {"id":2}
        b      60s   {"id":3}
    ''')
    assert shown(result.cleaned) == ['a@5s={"id":2}', 'a@8s={"id":1}']

    run, check           run records through a pipeline; check a table
    Result               the outcome: cleaned, late, dead, decisions, progress
    Event                happens between records: crash, rebalance, idle, wait and so on
    read_table, shown    records out of a table, and as a table writes them
    check_conservation   every record is cleaned, dropped, late, dead, merged or held
    check_any_cut        results do not depend on batches, commits and crashes

Strategies for hypothesis are in `headrace.testing.strategies`, which needs it. The operators, their
state and their changelog are those of the sidecar; `contracts/semantics/testing.md` lists the parts
that are not simulated.
"""

from headrace.testing.invariants import check_any_cut, check_conservation
from headrace.testing.running import AnyPipeline, Input, Result, run
from headrace.testing.scenarios import check
from headrace.testing.tables import Event, Row, read_table, shown

__all__ = [
    "AnyPipeline",
    "Event",
    "Input",
    "Result",
    "Row",
    "check",
    "check_any_cut",
    "check_conservation",
    "read_table",
    "run",
    "shown",
]
