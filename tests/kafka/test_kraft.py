"""A broker's properties, as a file and as an environment."""

from __future__ import annotations

from base64 import urlsafe_b64decode

import pytest

from headrace.services.broker.kraft import (
    CLUSTER_ID,
    Endpoint,
    Node,
    as_environment,
    as_file,
    properties,
)


def _node(number: int) -> Node:
    names = (f"{kind}-{number}" for kind in ("clients", "brokers", "controllers"))
    return Node(number, *(Endpoint(f":{number}", f"{name}:{number}") for name in names))


def test_a_node_tells_where_it_listens_and_where_it_is_found() -> None:
    nodes = [_node(1), _node(2)]
    told = properties(nodes[1], nodes, "data", "SSL")
    assert told["node.id"] == "2"
    assert told["listeners"] == "CLIENTS://:2,BROKERS://:2,CONTROLLERS://:2"
    assert told["advertised.listeners"] == "CLIENTS://clients-2:2,BROKERS://brokers-2:2"
    assert told["controller.quorum.voters"] == "1@controllers-1:1,2@controllers-2:2"
    assert told["listener.security.protocol.map"].split(",")[0] == "CLIENTS:SSL"


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_a_cluster_survives_the_loss_of_one(brokers: int, replicas: str, in_sync: str) -> None:
    nodes = [_node(number) for number in range(1, brokers + 1)]
    told = properties(nodes[0], nodes, "data")
    assert told["default.replication.factor"] == replicas
    assert told["transaction.state.log.replication.factor"] == replicas
    assert told["min.insync.replicas"] == in_sync
    assert told["transaction.state.log.min.isr"] == in_sync


def test_a_file_escapes_what_its_format_would_swallow() -> None:
    assert as_file({"a.b": "C:\\x", "c": "two\nlines"}) == "a.b=C:\\\\x\nc=two\\nlines\n"


def test_a_file_has_the_letters_of_a_folder_as_java_reads_them() -> None:
    written = as_file({"log.dirs": "/srv/j\u00fcrgen/\u672c/\U0001f30a"})
    assert written == "log.dirs=/srv/j\\u00fcrgen/\\u672c/\\ud83c\\udf0a\n"


def test_the_official_image_finds_the_same_names_in_its_environment() -> None:
    assert as_environment({"log.dirs": "x", "a_b": "y", "c-d": "z"}) == {
        "CLUSTER_ID": CLUSTER_ID,
        "KAFKA_LOG_DIRS": "x",
        "KAFKA_A__B": "y",
        "KAFKA_C___D": "z",
    }


def test_the_cluster_has_a_name_that_kafka_takes() -> None:
    assert urlsafe_b64decode(f"{CLUSTER_ID}==") == b"headrace-cluster"
