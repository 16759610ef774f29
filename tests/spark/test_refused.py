"""A broker that refuses a job is no broker that is silent, and no other driver."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.contracts.errors import InstanceFenced, KafkaRefused, KafkaUnreachable
from headrace.spark_jobs.write.producer import failure_of
from headrace.spark_jobs.write.topics import _kafka


def refusal(code: int, *, fatal: bool = False) -> KafkaException:
    """The exception that the client raises."""
    return KafkaException(KafkaError(code, "as it says", fatal=fatal))


def test_a_missing_right_to_the_transactional_id_is_no_other_driver() -> None:
    error = refusal(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, fatal=True)
    found = failure_of("priced", error)
    assert isinstance(found, KafkaRefused)
    assert str(found).startswith("`priced` could not commit to Kafka: the brokers refuse this job")
    assert isinstance(failure_of("priced", refusal(KafkaError.PRODUCER_FENCED)), InstanceFenced)


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaRefused),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaRefused),
        (KafkaError.SASL_AUTHENTICATION_FAILED, KafkaRefused),
        (KafkaError.REQUEST_TIMED_OUT, KafkaUnreachable),
    ],
)
def test_a_topic_that_the_job_may_not_make_is_a_refusal(code: int, raised: type[Exception]) -> None:
    what = "topics cannot be made ready"
    with pytest.raises(raised, match=rf"^{what}: "), _kafka(what):
        raise refusal(code)
