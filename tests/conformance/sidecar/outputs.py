"""One partition of the cleaned topic, against the output that a vector wants there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from headrace.contracts.record import Record
from headrace.contracts.window import WindowBounds, window_header, windowed_key
from tests.conformance.sidecar.groups import OFFSET_HEADER, Share
from tests.conformance.vectors import bytes_of


class Cleaned(NamedTuple):
    """The compared parts of a record: every byte, but for the order of headers."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]]


def disagreements(share: Share, cleaned: Sequence[Record]) -> Iterator[str]:
    """The first difference; what follows a missing or extra record is shifted and says nothing."""
    for wanted, record in zip_longest(_wanted(share), cleaned):
        want = None if wanted is None else _expected(wanted, share.vector["config"])
        got = None if record is None else _came(record)
        if want != got:
            place = "behind all others" if wanted is None else f"input {wanted['after_input']}"
            yield f"{place}: expected {want}, got {got}"
            return


def _wanted(share: Share) -> list[dict[str, Any]]:
    """The outputs that this partition's records cause.

    A record at which the service fails has no output: it commits up to that record.
    """
    end = (share.vector.get("error") or {}).get("after_input", len(share.vector["input"]))
    places = {place for place in share.places if place < end}
    return [output for output in share.vector["output"] if output["after_input"] in places]


def _expected(output: dict[str, Any], config: dict[str, Any]) -> Cleaned:
    key = output["key"]
    headers = [(name, bytes_of(value)) for name, value in (output.get("headers") or {}).items()]
    if not isinstance(key, dict):
        return _cleaned(bytes_of(key), output, headers)
    window = WindowBounds(config["window"]["type"], key["start"], key["end"])
    whole = windowed_key(key["key"].encode(), window)
    return _cleaned(whole, output, [*headers, window_header(window)])


def _cleaned(
    key: bytes | None, output: dict[str, Any], headers: list[tuple[str, bytes | None]]
) -> Cleaned:
    return Cleaned(key, bytes_of(output["value"]), output["ts"], _sorted(headers))


def _came(record: Record) -> Cleaned:
    headers = [header for header in record.headers if header[0] != OFFSET_HEADER]
    return Cleaned(record.key, record.value, record.timestamp_ms, _sorted(headers))


def _sorted(headers: list[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """By name; vectors do not say in which order headers stand."""
    return sorted(headers, key=lambda header: header[0])
