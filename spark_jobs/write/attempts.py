"""Write to a table again, if another commit came between.

A merge reads the table. Delta and Iceberg refuse its commit if files that it read are gone by then,
as behind a compaction, and the table stays as it was. Delta refuses an append as well, if the
table's columns or properties are others by then. If the commit was made all the same, another
attempt leaves the rows out: Delta compares the number of the micro-batch, and the sink of Iceberg
looks for it.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from headrace.contracts.errors import WorkerStalled
from headrace.spark_jobs.write.catalogs import REFUSALS

if TYPE_CHECKING:
    from collections.abc import Callable

ATTEMPTS = 5
_CAME_BETWEEN = re.compile(
    r"DELTA_(?:CONCURRENT_(?:APPEND|DELETE_DELETE|DELETE_READ|WRITE)|(?:METADATA|PROTOCOL)_CHANGED)\b"
    r"|iceberg\.exceptions\.(?:CommitFailed|Validation)Exception: (?:Found |Missing |Cannot commit)"
    r"|the table has been concurrently modified"
)
_IS_UNKNOWN = "CommitStateUnknownException"
"""Iceberg says this of a commit that may still come."""
_log = logging.getLogger(__name__)


def attempted(query: str, title: str, batch_id: int, write: Callable[[], None]) -> None:
    """Write a micro-batch of a query to a table, as often as other commits come between."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            write()
        except REFUSALS as error:
            text = str(error)
            if _IS_UNKNOWN in text or not _CAME_BETWEEN.search(text):
                raise
            if attempt == ATTEMPTS:
                message = (
                    f"while micro-batch {batch_id} of `{query}` was written to {title}, another"
                    f" commit changed that table, {ATTEMPTS} times in a row; let others commit to"
                    " it more seldom, and start the job again: it goes on where it ended"
                )
                raise WorkerStalled(message) from error
            _log.warning(
                "%s: another commit changed %s while micro-batch %d was written to it; it is"
                " written again (%d of %d times in a row)",
                *(query, title, batch_id, attempt, ATTEMPTS),
            )
        else:
            return
