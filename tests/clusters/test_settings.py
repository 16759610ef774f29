"""Settings that a broker refuses for good: one sentence, exit code 2, and no second try."""

from __future__ import annotations

import pytest

from tests.runtime.sidecar import MakePipeline

REORDER = "reorder: {grace: 1s}"


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        (
            "transaction_timeout",
            "20m",
            "HEADRACE_TRANSACTION_TIMEOUT: the brokers do not take 20m; see their `transaction.max",
        ),
        (
            "session_timeout",
            "1s",
            "HEADRACE_SESSION_TIMEOUT: the brokers do not take 1s; see their `group.*.session.time",
        ),
        ("replication_factor", "3", "the brokers cannot make the topic `{0.sink}`: Unable to"),
    ],
)
def test_a_setting_that_the_broker_refuses_is_named(
    make_pipeline: MakePipeline, setting: str, value: str, sentence: str
) -> None:
    pipeline = make_pipeline(REORDER)
    sidecar = pipeline.start(**{setting: value})
    assert sidecar.wait() == 2, sidecar.log
    assert "Traceback" not in sidecar.log
    assert sidecar.last_words.startswith(sentence.format(pipeline))
