"""What a query died of, as an error of ours where it is one.

What is raised in a worker, or while a batch is written, comes back as text inside of Spark's own
error; the class and the sentence stand in it.
"""

from __future__ import annotations

import re

from contracts import errors
from contracts.errors import HeadraceError

_RAISED = re.compile(r"contracts\.errors\.(\w+): (.+)")


def error_of(failure: BaseException) -> HeadraceError | None:
    """Our error inside of Spark's, None where there is none."""
    found = _RAISED.findall(str(failure))
    if not found:
        return None
    name, sentence = found[-1]
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, HeadraceError)):
        return None
    return kind(sentence.strip())
