"""Records that a silence releases before a repartition do not wait behind it for ever."""

from __future__ import annotations

import pytest

from headrace.testing import run, shown

PIPELINE = """
pipeline: clicks
source: {{topic: clicks.raw, idle: {source}}}
operators:
  - reorder: {{grace: 10s, idle: {idle}}}
  - deduplicate: {{by: id, id: key, interval: 1d}}
sink: {{topic: clicks.cleaned}}
"""
RECORDS = """
    # key  time  value  partition
    a      1s    x      0
    b      2s    y      1
    c      2s    z      0
"""


@pytest.mark.parametrize(("source", "idle"), [("30s", "5s"), ("5s", "30s")])
def test_a_silence_releases_records_through_a_repartition(source: str, idle: str) -> None:
    result = run(PIPELINE.format(source=source, idle=idle), RECORDS + "(wait 30s)\n(wait 30s)")
    assert sorted(shown(result.cleaned)) == ["a@1s=x", "b@2s=y", "c@2s=z"]
