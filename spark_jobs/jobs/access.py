"""How a job logs in to Kafka: one list of options, with the names of a sidecar's settings.

Spark reads by Kafka's own client in Java, and workers write by librdkafka; the two call the same
things otherwise. Certificates are read where the job starts, so other machines need no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, model_validator

from headrace.contracts.policies import Policy
from headrace.spark_jobs.jobs.given import taken

_MODULES = "org.apache.kafka.common.security"
_LOGIN_MODULES = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
}
_ENDPOINT = "ssl.endpoint.identification.algorithm"
_Text = Annotated[str, Field(min_length=1)]


class KafkaAccess(Policy):
    """How the job reaches Kafka, reading and writing."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """How connections are secured."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """How the job proves who it is; others are written into `reader` and `writer`."""
    sasl_username: _Text | None = None
    """The user."""
    sasl_password: SecretStr | None = None
    """The user's password, such as `${KAFKA_PASSWORD}`."""
    ssl_ca_file: _Text | None = None
    """The authorities that vouch for brokers, in PEM; without it, those that the clients know."""
    ssl_certificate_file: _Text | None = None
    """The job's own certificate, in PEM, where brokers ask for one."""
    ssl_key_file: _Text | None = None
    """The key of that certificate, in PEM (PKCS #8); it may be the same file."""
    ssl_key_password: SecretStr | None = None
    """The password of the key."""
    ssl_check_hostname: bool = True
    """Whether a broker's certificate must name its host."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        problem = next(_problems(self), None)
        if problem is not None:
            name, said = problem
            message = f"`{name.replace('_', '-')}` {said}"
            raise ValueError(message)
        return self

    def for_reader(self) -> dict[str, str]:
        """Return the options of Spark's source."""
        said: dict[str, str] = {"security.protocol": self.security_protocol}
        if self.sasl_mechanism is not None:
            login = _LOGIN_MODULES[self.sasl_mechanism]
            user, password = _quoted(self.sasl_username or ""), _quoted(_secret(self.sasl_password))
            said["sasl.mechanism"] = self.sasl_mechanism
            said["sasl.jaas.config"] = f"{login} required username={user} password={password};"
        if self.ssl_ca_file is not None:
            said["ssl.truststore.type"] = "PEM"
            said["ssl.truststore.certificates"] = _content(self.ssl_ca_file, "CERTIFICATE")
        if self.ssl_certificate_file is not None and self.ssl_key_file is not None:
            said["ssl.keystore.type"] = "PEM"
            chain = _content(self.ssl_certificate_file, "CERTIFICATE")
            said["ssl.keystore.certificate.chain"] = chain
            said["ssl.keystore.key"] = _content(self.ssl_key_file, "PRIVATE KEY")
        if self.ssl_key_password is not None:
            said["ssl.key.password"] = _secret(self.ssl_key_password)
        if not self.ssl_check_hostname:
            said[_ENDPOINT] = ""
        return {f"kafka.{name}": value for name, value in said.items()}

    def for_writer(self) -> dict[str, str]:
        """Return the options of librdkafka."""
        said: dict[str, str] = {"security.protocol": self.security_protocol}
        if self.sasl_mechanism is not None:
            said["sasl.mechanism"] = self.sasl_mechanism
            said["sasl.username"] = self.sasl_username or ""
            said["sasl.password"] = _secret(self.sasl_password)
        if self.ssl_ca_file is not None:
            said["ssl.ca.pem"] = _content(self.ssl_ca_file, "CERTIFICATE")
        if self.ssl_certificate_file is not None and self.ssl_key_file is not None:
            said["ssl.certificate.pem"] = _content(self.ssl_certificate_file, "CERTIFICATE")
            said["ssl.key.pem"] = _content(self.ssl_key_file, "PRIVATE KEY")
        if self.ssl_key_password is not None:
            said["ssl.key.password"] = _secret(self.ssl_key_password)
        if not self.ssl_check_hostname:
            said[_ENDPOINT] = "none"
        return said


def access_of(given: Mapping[str, Any]) -> KafkaAccess:
    """Return the access that a mapping of options describes; JobInvalid says what is wrong."""
    return taken(KafkaAccess, given, "kafka")


def _problems(access: KafkaAccess) -> Iterator[tuple[str, str]]:
    """Yield the options that would have no effect, and those that are missing."""
    sasl = access.security_protocol.startswith("SASL_")
    tls = access.security_protocol.endswith("SSL")
    for name in sorted(access.model_fields_set):
        if name.startswith("ssl_") and not tls:
            yield name, "does nothing without TLS; write `security-protocol: SASL_SSL`, or `SSL`"
        if name.startswith("sasl_") and not sasl:
            yield name, "does nothing without SASL; write `security-protocol: SASL_SSL`"
    if sasl:
        for name in ("sasl_mechanism", "sasl_username", "sasl_password"):
            if getattr(access, name) is None:
                yield name, f"is missing; {access.security_protocol} needs it"
    if access.ssl_certificate_file is not None and access.ssl_key_file is None:
        yield "ssl_key_file", "is missing; a certificate needs its key, if need be the same file"
    if access.ssl_key_file is not None and access.ssl_certificate_file is None:
        yield "ssl_certificate_file", "is missing; a key needs its certificate"
    if access.ssl_key_password is not None and access.ssl_key_file is None:
        yield "ssl_key_password", "does nothing without a key; add `ssl-key-file`"
    yield from _file_problems(access)


def _file_problems(access: KafkaAccess) -> Iterator[tuple[str, str]]:
    what = {"ssl_ca_file": "CERTIFICATE", "ssl_certificate_file": "CERTIFICATE"}
    for name, kind in {**what, "ssl_key_file": "PRIVATE KEY"}.items():
        file = getattr(access, name)
        if file is None:
            continue
        try:
            content = _content(file, kind)
        except OSError as error:
            reason = error.strerror
            yield name, f"cannot be read: `{file}` ({reason}); check path and permissions"
        except UnicodeDecodeError:
            yield name, f"`{file}` is not PEM; write it as PEM"
        else:
            if not content:
                yield name, f"`{file}` has no {kind.lower()} in PEM; write it as PEM"


def _content(file: str, kind: str) -> str:
    """Return the parts of a PEM file that are of a kind: a file may have certificate and key."""
    parts: list[str] = []
    inside = False
    for line in Path(file).read_text("utf-8").splitlines():
        if line.startswith("-----BEGIN ") and kind in line:
            inside = True
        if inside:
            parts.append(line)
        if line.startswith("-----END "):
            inside = False
    return "".join(f"{line}\n" for line in parts)


def _secret(secret: SecretStr | None) -> str:
    return "" if secret is None else secret.get_secret_value()


def _quoted(text: str) -> str:
    """Quote text as the login modules of Kafka's client read it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
