"""The rights of a pipeline as lines for `kafka-acls.sh`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from shlex import join

from headrace.contracts.errors import SettingsInvalid
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.rights import Right, rights_of
from headrace.services.settings import read_settings

_PRINCIPAL = re.compile(r"[A-Za-z]+:.+")


def print_acls(spec: PipelineSpec, principal: str) -> None:
    """Print what a principal must be allowed to run a pipeline by the settings at hand."""
    if not _PRINCIPAL.fullmatch(principal):
        message = f"--acls: `{principal}` is no principal of Kafka; write its type, too: User:ada"
        raise SettingsInvalid(message)
    settings = read_settings()
    exactly_once = settings.guarantee == "exactly-once"
    rights = rights_of(spec, exactly_once=exactly_once, decisions=settings.decisions)
    for line in acl_lines(rights, principal, settings.bootstrap_servers):
        print(line)


def acl_lines(rights: Iterable[Right], principal: str, servers: str) -> Iterator[str]:
    """A shell script: what is needed, and behind `#` what may be left out."""
    tool = ["kafka-acls.sh", "--bootstrap-server", servers, "--add", "--allow-principal", principal]
    needed: dict[tuple[str, str], list[Right]] = {}
    rest: dict[str, list[Right]] = {}
    for right in rights:
        if right.is_needed:
            needed.setdefault((right.resource, right.name), []).append(right)
        else:
            rest.setdefault(right.operation, []).append(right)
    yield f"# Without these {principal} cannot run the pipeline."
    for of_one in needed.values():
        yield f"# {'; '.join(right.why for right in of_one)}"
        yield join([*tool, *_operations(of_one), *_resource(of_one[0])])
    yield "# It runs without the following, too; take off the # of those that are wanted."
    for operation, alike in rest.items():
        yield f"# {alike[0].why}; without this, {alike[0].without}"
        resources = [word for right in alike for word in _resource(right)]
        yield f"# {join([*tool, '--operation', operation, *resources])}"


def _operations(rights: Iterable[Right]) -> list[str]:
    return [word for right in rights for word in ("--operation", right.operation)]


def _resource(right: Right) -> list[str]:
    words = [f"--{right.resource}"]
    if right.name:
        words.append(right.name.removesuffix("*"))
    return [*words, *(["--resource-pattern-type", "prefixed"] if right.is_prefix else [])]
