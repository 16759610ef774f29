"""All private names of Faust and aiokafka that we use are in one table, and still exist.

After an upgrade this says what moved, instead of a sidecar that loses records in some way of its
own. After a change of ours it says what the table in `services/kafka/seams.py` does not name.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import pkgutil
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaConnectionError

import headrace.services
from headrace.services.kafka import seams
from tests.architecture.source import parsed, project
from tests.runtime.certificates import Authority

FOREIGN = ("aiokafka", "asyncio", "faust", "mode")
SEARCHED = ("headrace.services.kafka.", "headrace.services.runtime.", "headrace.services.admin.")
MADE_FOR_EVERY_CLASS = {"_abc_impl", "_is_protocol", "logger"}
NAMES = [(path, name) for path, names in seams.PRIVATE_NAMES.items() for name in names]
SIGNATURES = {
    "aiokafka.client.AIOKafkaClient": {
        "_get_conn": "self, node_id, group=, no_hint=",
        "_on_connection_closed": "self, conn, reason",
    },
    "aiokafka.conn.AIOKafkaConnection": {"close": "self, reason=, exc="},
    "aiokafka.consumer.AIOKafkaConsumer": {"start": "self", "stop": "self"},
    "aiokafka.consumer.fetcher.PartitionRecords": {
        "_consume_aborted_up_to": "self, batch_offset",
        "_contains_abort_marker": "self, next_batch",
        "_unpack_records": "self",
    },
    "aiokafka.producer.message_accumulator.BatchBuilder": {
        "_set_producer_state": "self, producer_id, producer_epoch, base_sequence"
    },
    "aiokafka.producer.message_accumulator.MessageAccumulator": {"fail_all": "self, exception"},
    "aiokafka.producer.sender.Sender": {
        "_coordinator_dead": "self, coordinator_type",
        "_do_txn_offset_commit": "self, offsets, group_id",
        "_find_coordinator": "self, coordinator_type, coordinator_key",
        "_maybe_wait_for_pid": "self",
    },
    "aiokafka.consumer.fetcher.Fetcher": {"_notify": "self, future"},
    "aiokafka.consumer.group_coordinator.GroupCoordinator": {
        "_do_commit_offsets": "self, assignment, offsets",
        "_do_rejoin_group": "self, subscription",
        "_get_metadata_snapshot": "self",
        "_on_join_complete": "self, generation, member_id, protocol, member_assignment_bytes",
        "_on_join_prepare": "self, previous_assignment",
        "_perform_assignment": "self, response",
        "_send_req": "self, request",
        "_start_heartbeat_task": "self",
        "fetch_committed_offsets": "self, partitions",
        "request_rejoin": "self",
        "reset_generation": "self",
    },
    "aiokafka.producer.transaction_manager.TransactionManager": {
        "consumer_group_to_add": "self",
        "error_transaction": "self, exc",
        "fatal_error": "self, exc",
    },
    "aiokafka.protocol.api.Request": {"prepare": "self, versions"},
    "faust.App": {
        "_create_directories": "self",
        "_new_transport": "self",
        "_producer_flush": "self, logger",
        "_stop_consumer": "self",
    },
    "faust.Table": {"_new_store_by_url": "self, url"},
    "faust.Topic": {"_compile_decode": "self"},
    "faust.stores.base.Store": {"persisted_offset": "self, tp"},
    "faust.tables.manager.TableManager": {
        "_update_channels": "self",
        "on_partitions_revoked": "self, revoked",
        "on_start": "self",
    },
    "faust.transport.drivers.aiokafka.AIOKafkaConsumerThread": {
        "__post_init__": "self",
        "_create_worker_consumer": "self, transport",
        "_ensure_consumer": "self",
        "_fetch_records": "self, consumer, active_partitions, timeout=, max_records=",
    },
    "faust.transport.drivers.aiokafka.Consumer": {
        "_drain_messages": "self, fetcher",
        "_new_consumer_thread": "self",
        "ack": "self, message",
        "commit": "self, topics=, start_new_transaction=",
    },
}
"""How each function of the table is called; whatever else it names is an attribute."""


class Use(NamedTuple):
    """A place of ours that leans on something inside."""

    where: str
    name: str
    of: tuple[str, ...]
    """The classes whose own it may be, by path; empty where only the name is known."""


def class_of(path: str) -> type:
    module, _, name = path.rpartition(".")
    found: type = getattr(importlib.import_module(module), name)
    return found


def signature_of(function: Any) -> str:
    """Parameters as they may be passed; defaults and types may change freely."""
    marks: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    words = []
    for parameter in inspect.signature(function).parameters.values():
        optional = "" if parameter.default is parameter.empty else "="
        words.append(marks.get(parameter.kind, "") + parameter.name + optional)
    return ", ".join(words)


def sets(cls: type, name: str) -> bool:
    """Whether a foreign class gives its instances an attribute of this name."""
    sources = map(source_of, foreign_bases(cls))
    return any(f"self.{name} =" in one or f"self.{name}:" in one for one in sources)


@cache
def source_of(cls: type) -> str:
    """The lines of a class; `inspect.getsource` would search for garbage while it parses."""
    file = Path(inspect.getfile(cls))
    nodes = (node for node in ast.walk(parsed(file)) if isinstance(node, ast.ClassDef))
    (found,) = (node for node in nodes if node.name == cls.__name__)
    return "\n".join(file.read_text("utf-8").splitlines()[found.lineno - 1 : found.end_lineno])


def foreign_bases(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.partition(".")[0] in FOREIGN]


def test_the_versions_are_the_pinned_ones() -> None:
    pinned = project()["project"]["optional-dependencies"]["sidecar"]
    for name, expected in (("faust-streaming", seams.FAUST), ("aiokafka", seams.AIOKAFKA)):
        assert version(name) == expected
        assert f"{name}=={expected}" in pinned


@pytest.mark.parametrize(("path", "name"), NAMES)
def test_libraries_have_all_that_the_table_names_as_we_call_it(path: str, name: str) -> None:
    cls = class_of(path)
    expected = SIGNATURES.get(path, {}).get(name)
    found = inspect.getattr_static(cls, name, None)
    if expected is not None:
        assert found is not None, f"{path}.{name} is gone"
        assert signature_of(found) == expected, f"{path}.{name} is called otherwise"
    else:
        assert not inspect.isfunction(found), f"{path}.{name} is a function; add its signature"
        assert found is not None or sets(cls, name), f"{path}.{name} is gone"


def test_every_function_that_is_described_is_in_the_table() -> None:
    described = {(path, name) for path, names in SIGNATURES.items() for name in names}
    assert described <= set(NAMES)


def uses() -> Iterator[Use]:
    """Everything foreign and private that the runtime calls, sets or overrides."""
    for info in pkgutil.walk_packages(headrace.services.__path__, "headrace.services."):
        if info.ispkg or not info.name.startswith(SEARCHED):
            continue
        module = importlib.import_module(info.name)
        tree = parsed(Path(str(module.__file__)))
        yield from _uses_of_others(info.name, tree)
        for node in ast.walk(tree):
            cls = getattr(module, node.name, None) if isinstance(node, ast.ClassDef) else None
            if isinstance(cls, type) and foreign_bases(cls):
                yield from _overrides(info.name, cls)
                yield from _uses_of_self(info.name, cls, node)


def _overrides(module: str, cls: type) -> Iterator[Use]:
    for name in vars(cls).keys() - MADE_FOR_EVERY_CLASS:
        of = [vars(base)[name] for base in foreign_bases(cls) if name in vars(base)]
        is_special = name.startswith("__") and name != "__post_init__"
        # An abstract method is meant to be written by others.
        if of and not is_special and not getattr(of[0], "__isabstractmethod__", False):
            yield Use(f"{module}.{cls.__name__}", name, _paths(cls))


def _uses_of_self(module: str, cls: type, node: ast.AST) -> Iterator[Use]:
    for attribute in _private_attributes(node):
        is_ours = _is_defined(cls, attribute.attr, node) and not sets(cls, attribute.attr)
        if _is_self(attribute.value) and not is_ours:
            yield Use(f"{module}.{cls.__name__}", attribute.attr, _paths(cls))


def _is_defined(cls: type, name: str, node: ast.AST) -> bool:
    """Whether a class of ours has a name by itself."""
    stored = {
        attribute.attr
        for attribute in _private_attributes(node)
        if isinstance(attribute.ctx, ast.Store) and _is_self(attribute.value)
    }
    return name in vars(cls) or name in stored


def _uses_of_others(module: str, tree: ast.AST) -> Iterator[Use]:
    for attribute in _private_attributes(tree):
        if not _is_self(attribute.value) and attribute.attr != "_replace":
            yield Use(f"{module}: {ast.unparse(attribute)}", attribute.attr, ())


def _private_attributes(tree: ast.AST) -> list[ast.Attribute]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
    ]


def _is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in {"self", "cls"}


def _paths(cls: type) -> tuple[str, ...]:
    bases = foreign_bases(cls)
    return tuple(path for path in seams.PRIVATE_NAMES if class_of(path) in bases)


def _is_named(use: Use) -> bool:
    paths = use.of or tuple(seams.PRIVATE_NAMES)
    return any(use.name in seams.PRIVATE_NAMES[path] for path in paths)


def test_everything_that_is_leaned_on_is_in_the_table() -> None:
    assert [f"{use.where}: {use.name}" for use in uses() if not _is_named(use)] == []


def test_the_table_names_nothing_that_nobody_uses() -> None:
    found = list(uses())
    assert len(found) > 20, "the code is not searched"
    unused = [
        f"{path}.{name}"
        for path, name in NAMES
        if not any(use.name == name and path in (use.of or (path,)) for use in found)
    ]
    # These have no underscore, and are still nobody's business but aiokafka's.
    assert unused == [
        "aiokafka.consumer.group_coordinator.GroupCoordinator.fetch_committed_offsets",
        "aiokafka.producer.message_accumulator.MessageAccumulator.fail_all",
        "aiokafka.producer.transaction_manager.TransactionManager.consumer_group_to_add",
        "aiokafka.producer.transaction_manager.TransactionManager.error_transaction",
        "aiokafka.producer.transaction_manager.TransactionManager.fatal_error",
        "aiokafka.protocol.api.Request.prepare",
    ]


def test_a_consumer_starts_with_the_coordinator_that_we_name() -> None:
    start = AIOKafkaConsumer.start
    assert "GroupCoordinator" in start.__code__.co_names, "it finds the class elsewhere now"
    assert start.__code__.co_freevars == (), "it needs more than its globals now"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "ours")


@pytest.mark.parametrize("is_silent", [True, False])
def test_python_aborts_a_tls_connection_whoever_has_hung_up(
    authority: Authority,
    is_silent: bool,  # noqa: FBT001 - a case, not a caller's choice
) -> None:
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(authority.issue("server", for_host="IP:127.0.0.1"))
    is_over = threading.Event()

    def shake_hands(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        # A client that is slow may be gone before both have shaken hands.
        with suppress(OSError), ours.wrap_socket(connection, server_side=True) as shaken:
            shaken.recv(1_024)
            if is_silent:
                is_over.wait(30)
            else:
                shaken.unwrap()

    async def is_let_go(port: int) -> None:
        trusting = ssl.create_default_context(cafile=str(authority.file))
        connection = seams.Connection(
            "127.0.0.1",
            port,
            request_timeout_ms=500,
            security_protocol="SSL",
            ssl_context=trusting,
        )
        with pytest.raises((KafkaConnectionError, TimeoutError)):
            await connection.connect()
        async with asyncio.timeout(10):
            await seams.hang_up(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as threads:
        shaking = threads.submit(shake_hands, listener)
        asyncio.run(is_let_go(listener.getsockname()[1]))
        is_over.set()
        shaking.result()


def test_our_connection_for_offsets_is_none_of_theirs() -> None:
    assert seams._OFFSETS_CONNECTION not in set(ConnectionGroup)  # noqa: SLF001
    assert signature_of(AIOKafkaClient.send) == "self, node_id, request, group="
