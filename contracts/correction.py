"""How a row says that it corrects an earlier one.

A join that was asked to tells a stream record again when a version of the table comes late and the
record meets another value now. Such a row has the record's key, timestamp and headers, as the one
before it had, and this header behind them.
"""

from __future__ import annotations

CORRECTED_HEADER = ("headrace.corrected", b"1")
