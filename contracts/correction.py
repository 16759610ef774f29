"""How a row says that it corrects an earlier one.

A join with corrections switched on emits a stream record again when a version of the table arrives
late and the record now meets another value. The new row has the same key, timestamp and headers as
the row that it corrects, with this header added at the end.
"""

from __future__ import annotations

CORRECTED_HEADER = ("headrace.corrected", b"1")
