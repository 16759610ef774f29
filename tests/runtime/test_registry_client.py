"""A registry over real HTTP: what schemas refer to, and who vouches for it."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from headrace.contracts.errors import RegistryRefused
from headrace.contracts.serde.registered import Named, Schema
from headrace.services.kafka.registry_client import (
    RegistryClient,
    RegistryUnavailableError,
    SchemaMissingError,
)
from headrace.services.kafka.security import trusting
from tests.contracts.registered import CLICK_AVRO, click_file, serialized
from tests.runtime.certificates import Authority
from tests.runtime.registry_server import registry_server


def referring(name: str, subject: str, version: int = 1) -> list[dict[str, object]]:
    return [{"name": name, "subject": subject, "version": version}]


def test_a_schemas_references_come_before_it_however_deep() -> None:
    with registry_server() as registry:
        registry.register("id", '{"type": "fixed", "name": "Id", "size": 4}')
        user = '{"type": "record", "name": "User", "fields": [{"name": "id", "type": "Id"}]}'
        registry.register("web/user", user, references=referring("Id", "id"))
        both = [*referring("User", "web/user"), *referring("Id", "id")]
        number = registry.register("order", '["User", "Id"]', references=both)
        schema = RegistryClient(f"{registry.url}/", None, None).schema(number)
    assert [one.name for one in schema.references] == ["Id", "User"]
    assert schema.references[1] == Named("User", user)


def test_of_protobuf_descriptors_are_asked_for() -> None:
    file = click_file()
    visit = descriptor_pb2.FileDescriptorProto(name="default", syntax="proto3")
    visit.dependency.append("click.proto")
    with registry_server() as registry:
        registry.register("click", serialized(file), "PROTOBUF")
        number = registry.register(
            "visit", serialized(visit), "PROTOBUF", referring("click.proto", "click")
        )
        found = RegistryClient(registry.url, None, None).schema(number)
    references = (Named("click.proto", serialized(file)),)
    assert found == Schema("PROTOBUF", serialized(visit), references)


def test_a_reference_to_nothing_is_a_schema_that_is_missing() -> None:
    with registry_server() as registry:
        number = registry.register("order", '"User"', references=referring("User", "user", 3))
        with pytest.raises(SchemaMissingError, match="Version 3 not found"):
            RegistryClient(registry.url, None, None).schema(number)


def test_a_registry_that_does_not_listen_is_away() -> None:
    with registry_server() as registry:
        url = registry.url
    with pytest.raises(RegistryUnavailableError):
        RegistryClient(url, None, None).schema(1)


def test_a_registry_that_says_half_an_answer_is_away() -> None:
    with registry_server() as registry:
        registry.answer = 200, b'{"schema": "'
        registry.promises_bytes = 100
        client = RegistryClient(registry.url, None, None)
        with pytest.raises(RegistryUnavailableError, match="ends too early"):
            client.schema(1)
        # A cut refusal is none: it could be any.
        registry.answer = 404, b'{"error_code": 404'
        with pytest.raises(RegistryUnavailableError, match="ends too early"):
            client.schema(1)


def test_a_registry_is_vouched_for_by_the_authority_that_was_named(tmp_path: Path) -> None:
    ours, theirs = (Authority(tmp_path, name) for name in ("ours", "theirs"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ours.issue("registry", for_host="IP:127.0.0.1"))
    with registry_server() as plain:
        number = plain.register("click", CLICK_AVRO)
    with registry_server(context) as registry:
        assert registry.put("click", {"schema": CLICK_AVRO, "schemaType": "AVRO"}) == number
        known = RegistryClient(registry.url, None, trusting(ours.file, system=True))
        assert known.schema(number) == Schema("AVRO", CLICK_AVRO)
        stranger = RegistryClient(registry.url, None, trusting(theirs.file, system=True))
        with pytest.raises(RegistryRefused, match="HEADRACE_SCHEMA_REGISTRY_CA_FILE"):
            stranger.schema(number)
