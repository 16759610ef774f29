"""Where settings come from, and the sentence for each that is wrong."""

from __future__ import annotations

import logging
import os
import traceback
from pathlib import Path

import pytest
from aiokafka.protocol.types import Int32

from headrace.contracts.errors import SettingsInvalid
from headrace.contracts.servers import servers
from headrace.services.settings import Settings, read_settings
from headrace.services.variables import variable

SECRET = "rosebud-4711"  # noqa: S105  # the secret that must never come out


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("HEADRACE_"):
            monkeypatch.delenv(name)


def _wrong(monkeypatch: pytest.MonkeyPatch, **variables: object) -> list[str]:
    for name, value in variables.items():
        monkeypatch.setenv(f"HEADRACE_{name}", str(value))
    with pytest.raises(SettingsInvalid) as caught:
        read_settings()
    return str(caught.value).splitlines()


def test_an_empty_environment_is_the_defaults() -> None:
    settings = read_settings()
    assert settings == Settings()
    assert settings.bootstrap_servers == "127.0.0.1:9092"
    assert settings.guarantee == "exactly-once"
    assert settings.http_port is None
    assert settings.memory_bytes is None


def test_a_variable_is_written_as_in_a_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_COMMIT_INTERVAL", "1m30s")
    monkeypatch.setenv("HEADRACE_MEMORY", "2GiB")
    monkeypatch.setenv("HEADRACE_COMMIT_BYTES_MAX", "1MiB")
    monkeypatch.setenv("HEADRACE_TRANSACTION_TIMEOUT", "10m")
    monkeypatch.setenv("HEADRACE_DECISIONS", "true")
    monkeypatch.setenv("HEADRACE_HTTP_PORT", "8080")
    monkeypatch.setenv("HEADRACE_STATE_FOLDER", "here/state")
    settings = read_settings()
    assert settings.commit_interval_ms == 90_000
    assert settings.memory_bytes == 2 << 30
    assert settings.commit_bytes_max == 1 << 20
    assert settings.decisions is True
    assert settings.http_port == 8080
    assert settings.state_folder == Path("here/state")


def test_the_longest_times_fit_into_what_brokers_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SESSION_TIMEOUT", "TRANSACTION_TIMEOUT", "SHUTDOWN_TIMEOUT"):
        monkeypatch.setenv(f"HEADRACE_{name}", "12d")
    settings = read_settings()
    for sent_ms in (
        settings.transaction_timeout_ms,
        # How long the group waits for a member in a rebalance.
        settings.session_timeout_ms + settings.shutdown_timeout_ms,
    ):
        assert len(Int32.encode(sent_ms)) == 4


def test_a_flag_goes_before_a_variable_and_an_absent_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP_SERVERS", "one:1")
    monkeypatch.setenv("HEADRACE_GUARANTEE", "at-least-once")
    settings = read_settings(bootstrap_servers="two:2", guarantee=None)
    assert settings.bootstrap_servers == "two:2"
    assert settings.guarantee == "at-least-once"


def test_an_empty_variable_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HTTP_PORT", "")
    monkeypatch.setenv("HEADRACE_SASL_USERNAME", "")
    monkeypatch.setenv("HEADRACE_LOG_LEVEL_FILE", "")
    assert read_settings() == Settings()


def test_every_setting_can_come_from_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(SECRET + "\r\n")
    monkeypatch.setenv("HEADRACE_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("HEADRACE_SASL_MECHANISM", "SCRAM-SHA-512")
    monkeypatch.setenv("HEADRACE_SASL_USERNAME", "clicks")
    monkeypatch.setenv("HEADRACE_SASL_PASSWORD_FILE", str(file))
    settings = read_settings()
    assert settings.sasl_password is not None
    assert settings.sasl_password.get_secret_value() == SECRET


def test_no_variable_means_two_things() -> None:
    plain = [variable(field) for field in Settings.model_fields]
    assert len({*plain, *(f"{name}_FILE" for name in plain)}) == 2 * len(Settings.model_fields)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("COMMIT_INTERVAL", "soon", "`soon` is not a duration; write a number and a unit"),
        ("COMMIT_INTERVAL", "200", "`200` is not a duration; write a number and a unit"),
        ("COMMIT_INTERVAL", "0s", "`0s` is too small; write more than 0"),
        ("MEMORY", "much", "`much` is not a size; write a number and a unit"),
        ("GUARANTEE", "most", "`most` is none of the choices; write `exactly-once` or"),
        ("HTTP_PORT", "web", "`web` is not a whole number; write one"),
        ("HTTP_PORT", "70000", "`70000` is too large; write at most 65535"),
        ("REPLICATION_FACTOR", "32768", "`32768` is too large; write at most 32767"),
        ("SESSION_TIMEOUT", "100d", "`100d` is too large; write at most 12d"),
        ("TRANSACTION_TIMEOUT", "100d", "`100d` is too large; write at most 12d"),
        ("SHUTDOWN_TIMEOUT", "100d", "`100d` is too large; write at most 12d"),
        ("COMMIT_RECORDS_MAX", "0", "`0` is too small; write more than 0"),
        ("STANDBYS", "-1", "`-1` is too small; write at least 0"),
        ("DECISIONS", "maybe", "`maybe` is not a switch; write `true` or `false`"),
        ("INSTANCE_ID", "a b", "`a b` is not a name that Kafka accepts"),
        ("BOOTSTRAP_SERVERS", "kafka", "`kafka` is not an address; write host:port"),
        ("BOOTSTRAP_SERVERS", "a:1,,b:2", "`` is not an address; write host:port"),
        ("BOOTSTRAP_SERVERS", "kafka://a:1", "`kafka://a:1` is not an address"),
        ("BOOTSTRAP_SERVERS", "a:99999", "`a:99999` is not an address"),
        ("BOOTSTRAP_SERVERS", "::1:9092", "`::1:9092` is not an address"),
        ("BOOTSTRAP_SERVERS", "a..b:9092", "`a..b:9092` is not an address; write host:port"),
        ("HTTP_HOST", "a..b", "`a..b` is no name of a host; write one, or an address"),
        (
            "HTTP_HOST",
            "a" * 64,
            "`aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...` is no",
        ),
        ("OAUTH_TOKEN_URL", "https://a..b/t", "`https://a..b/t` is not an address; write https://"),
        ("SCHEMA_REGISTRY_URL", "https://a..b", "this is not the address of one registry;"),
        ("OAUTH_TOKEN_URL", "ftp://a", "`ftp://a` is not an address; write https://host/path"),
        ("OAUTH_TOKEN_URL", "http://[::1/a", "`http://[::1/a` is not an address; write https://"),
        ("OAUTH_TOKEN_URL", "http://a:port", "`http://a:port` is not an address; write https://"),
        ("SSL_CA_FILE", "no/such.pem", "`no/such.pem` cannot be read (No such file or directory)"),
        ("SASL_PASSWORD_FILE", "no/such", "`no/such` cannot be read (No such file or directory)"),
        ("BOOTSTRAP_SERVER", "a:1", "is not known; did you mean HEADRACE_BOOTSTRAP_SERVERS?"),
        ("SASL_PASWORD", SECRET, "is not known; did you mean HEADRACE_SASL_PASSWORD?"),
    ],
)
def test_a_wrong_value_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, sentence: str
) -> None:
    (line,) = _wrong(monkeypatch, **{name: value})
    assert line.startswith(f"HEADRACE_{name}: {sentence}")
    assert SECRET not in line


@pytest.mark.parametrize("address", ["a:1", "[::1]:9092", "10.0.0.1:9092", "kafka-1.k_x:29092"])
def test_addresses_are_taken_as_people_write_them(address: str) -> None:
    settings = read_settings(bootstrap_servers=f"{address}, b:2")
    assert servers(settings.bootstrap_servers) == [address, "b:2"]


def test_every_problem_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _wrong(monkeypatch, LOG_LEVEL="loud", HTTP_PORT="web", GUARANTEE="none")
    names = {line.partition(":")[0] for line in lines}
    assert names == {"HEADRACE_LOG_LEVEL", "HEADRACE_HTTP_PORT", "HEADRACE_GUARANTEE"}


def test_a_wrong_flag_is_named_as_a_flag() -> None:
    with pytest.raises(SettingsInvalid, match=r"^--commit-interval: `soon` is not a duration"):
        read_settings(commit_interval_ms="soon")


def test_a_value_out_of_a_file_names_the_variable_of_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "port"
    file.write_text("web\n")
    (line,) = _wrong(monkeypatch, HTTP_PORT_FILE=file)
    assert line.startswith("HEADRACE_HTTP_PORT_FILE: `web` is not a whole number")


def test_a_value_and_a_file_are_one_too_many(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "level"
    file.write_text("debug")
    (line,) = _wrong(monkeypatch, LOG_LEVEL="info", LOG_LEVEL_FILE=file)
    assert line == (
        "HEADRACE_LOG_LEVEL_FILE: HEADRACE_LOG_LEVEL is set as well; remove one of the two"
    )


def test_a_file_that_is_not_text_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"\xff\xfe")
    (line,) = _wrong(monkeypatch, SASL_PASSWORD_FILE=file)
    assert line == f"HEADRACE_SASL_PASSWORD_FILE: `{file}` is not UTF-8; save it as UTF-8"


def test_other_programs_may_have_variables_with_our_prefix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("HEADRACE_PORT_9092_TCP", "tcp://10.0.0.1:9092")
    assert read_settings() == Settings()


SASL = {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "SCRAM-SHA-512"}
LOGIN = {"SASL_USERNAME": "clicks", "SASL_PASSWORD": SECRET}
WITHOUT_SASL = "does nothing without SASL; set HEADRACE_SECURITY_PROTOCOL to SASL_SSL"
WITHOUT_TLS = "does nothing without TLS; set HEADRACE_SECURITY_PROTOCOL to SSL or SASL_SSL"
IN_CLEAR = (
    "would send the secret in clear to another machine; write https://, or set"
    " HEADRACE_OAUTH_PLAIN_HTTP to true where the way there is safe"
)
ADDRESS = "this is not the address of one registry; write it as https://host:8081, without a user"
OAUTH = {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "OAUTHBEARER"}
CLIENT = {"OAUTH_TOKEN_URL": "https://a/b", "OAUTH_CLIENT_ID": "c", "OAUTH_CLIENT_SECRET": SECRET}


@pytest.mark.parametrize(
    ("variables", "sentences"),
    [
        (
            {"SECURITY_PROTOCOL": "SASL_SSL", **LOGIN},
            ["SASL_MECHANISM: is missing; SASL needs one, such as SCRAM-SHA-512"],
        ),
        (
            SASL,
            [
                "SASL_USERNAME: is missing; SCRAM-SHA-512 needs it",
                "SASL_PASSWORD: is missing; SCRAM-SHA-512 needs it",
            ],
        ),
        (
            {**OAUTH, "OAUTH_CLIENT_ID": "c", "OAUTH_TOKEN_URL": "https://a"},
            ["OAUTH_CLIENT_SECRET: is missing; OAUTHBEARER needs it"],
        ),
        (
            {**OAUTH, **CLIENT, "SASL_PASSWORD": SECRET},
            ["SASL_PASSWORD: does nothing with OAUTHBEARER; remove it"],
        ),
        (
            {**SASL, **LOGIN, "OAUTH_SCOPE": "kafka"},
            ["OAUTH_SCOPE: does nothing with SCRAM-SHA-512; remove it"],
        ),
        (
            {**SASL, **LOGIN, "OAUTH_PLAIN_HTTP": "true"},
            ["OAUTH_PLAIN_HTTP: does nothing with SCRAM-SHA-512; remove it"],
        ),
        (
            {**OAUTH, **CLIENT, "OAUTH_TOKEN_URL": "http://127.0.0.1.example.org/b"},
            [f"OAUTH_TOKEN_URL: {IN_CLEAR}"],
        ),
        (
            LOGIN,
            [
                f"SASL_PASSWORD: {WITHOUT_SASL}",
                f"SASL_USERNAME: {WITHOUT_SASL}",
            ],
        ),
        (
            {"SSL_CHECK_HOSTNAME": "false"},
            [f"SSL_CHECK_HOSTNAME: {WITHOUT_TLS}"],
        ),
        (
            {"SECURITY_PROTOCOL": "SSL", "SSL_CERTIFICATE_FILE": __file__},
            ["SSL_KEY_FILE: is missing; a certificate needs its key, if need be the same file"],
        ),
        (
            {"SECURITY_PROTOCOL": "SSL", "SSL_KEY_FILE": __file__},
            ["SSL_CERTIFICATE_FILE: is missing; a key needs its certificate"],
        ),
        (
            {"SECURITY_PROTOCOL": "SSL", "SSL_KEY_PASSWORD": SECRET},
            ["SSL_KEY_PASSWORD: does nothing without a key; set HEADRACE_SSL_KEY_FILE"],
        ),
        (
            {"SCHEMA_REGISTRY_USERNAME": "a", "SCHEMA_REGISTRY_PASSWORD": SECRET},
            [
                f"SCHEMA_REGISTRY_{name}: does nothing without a registry;"
                " set HEADRACE_SCHEMA_REGISTRY_URL"
                for name in ("PASSWORD", "USERNAME")
            ],
        ),
        (
            {"SCHEMA_REGISTRY_URL": "https://a:8081", "SCHEMA_REGISTRY_PASSWORD": SECRET},
            ["SCHEMA_REGISTRY_USERNAME: is missing; a password needs a user"],
        ),
        (
            {"SCHEMA_REGISTRY_URL": "http://a:8081", "SCHEMA_REGISTRY_CA_FILE": __file__},
            ["SCHEMA_REGISTRY_CA_FILE: does nothing without TLS; write https:// in the address"],
        ),
        (
            {"SCHEMA_REGISTRY_URL": "http://a:8081", "SCHEMA_REGISTRY_USERNAME": "a"},
            ["SCHEMA_REGISTRY_URL: would send a password in clear elsewhere; write https://"],
        ),
        (
            {"SCHEMA_REGISTRY_URL": f"https://a:{SECRET}@b"},
            [f"SCHEMA_REGISTRY_URL: {ADDRESS}"],
        ),
        (
            {"SCHEMA_REGISTRY_URL": "https://a:8081,https://b:8081"},
            [f"SCHEMA_REGISTRY_URL: {ADDRESS}"],
        ),
        (
            {"SCHEMA_REGISTRY_URL": "http://[::1:8081", "SCHEMA_REGISTRY_USERNAME": "a"},
            [f"SCHEMA_REGISTRY_URL: {ADDRESS}"],
        ),
        (
            {"HEARTBEAT_INTERVAL": "10s"},
            ["HEARTBEAT_INTERVAL: must be shorter than HEADRACE_SESSION_TIMEOUT (10s)"],
        ),
        (
            {"GUARANTEE": "at-least-once", "HEARTBEAT_INTERVAL": "5s"},
            ["HEARTBEAT_INTERVAL: must be shorter than half of HEADRACE_SESSION_TIMEOUT (10s)"],
        ),
        (
            {"COMMIT_INTERVAL": "15s"},
            ["COMMIT_INTERVAL: must be shorter than HEADRACE_TRANSACTION_TIMEOUT (15s)"],
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_a_sentence(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], sentences: list[str]
) -> None:
    assert _wrong(monkeypatch, **variables) == [f"HEADRACE_{sentence}" for sentence in sentences]


def test_settings_that_fit_together_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**OAUTH, **CLIENT, "OAUTH_SCOPE": "kafka"}.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    assert read_settings().oauth_scope == "kafka"


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://127.0.0.1:8080/token", "false"),
        ("http://[::1]:8080/token", "false"),
        ("http://localhost/token", "false"),
        ("http://tokens.example.org/token", "true"),
    ],
)
def test_a_token_server_in_clear_is_on_this_machine_or_allowed_by_name(
    monkeypatch: pytest.MonkeyPatch, url: str, allowed: str
) -> None:
    variables = {**OAUTH, **CLIENT, "OAUTH_TOKEN_URL": url, "OAUTH_PLAIN_HTTP": allowed}
    for name, value in variables.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    assert read_settings().oauth_token_url == url


def test_the_token_server_has_an_authority_though_the_brokers_have_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    protocol = {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SSL_CA_FILE": __file__}
    for name, value in {**OAUTH, **CLIENT, **protocol}.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    assert read_settings().ssl_ca_file == Path(__file__)
    monkeypatch.setenv("HEADRACE_OAUTH_TOKEN_URL", "http://127.0.0.1/token")
    assert _wrong(monkeypatch) == [f"HEADRACE_SSL_CA_FILE: {WITHOUT_TLS}"]


def test_secrets_come_out_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in {**SASL, **LOGIN}.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    settings = read_settings()
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").warning("%s %r", settings, settings)
    shown = [repr(settings), str(settings), settings.model_dump_json(), caplog.text]
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", "loud")
    monkeypatch.setenv("HEADRACE_SSL_CHECK_HOSTNAME", "perhaps")
    with pytest.raises(SettingsInvalid) as caught:
        read_settings(sasl_password=SECRET)
    shown.append("".join(traceback.format_exception(caught.value)))
    assert [text for text in shown if SECRET in text] == []


@pytest.mark.parametrize("host", ["tokens.example.org", "tokens.example.org:port", "[::1"])
def test_a_secret_in_the_address_of_a_token_server_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    url = f"https://client:{SECRET}@{host}/token"
    for name, value in {**OAUTH, **CLIENT, "OAUTH_TOKEN_URL": url}.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    with pytest.raises(SettingsInvalid) as caught:
        read_settings()
    assert str(caught.value) == (
        "HEADRACE_OAUTH_TOKEN_URL: is not an address; write https://host/path, without a user"
    )
