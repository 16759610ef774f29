"""The soak's stream and its account, through the operators alone; and a short soak."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.contracts.record import Record
from headrace.services.cli.pipeline_file import parse_pipeline
from tests.operators.service import Service, left
from tests.soak import __main__ as command
from tests.soak.account import Account
from tests.soak.levels import Sample, grown
from tests.soak.page import page, picture, problems
from tests.soak.run import Outcome, Plan, soak
from tests.soak.stream import CLEANED, LATE, PIPELINE, endings, made

COUNT, STEP_MS = 3_000, 160


def came() -> tuple[Account, list[tuple[str, Record]]]:
    """Send one partition through the operators, and return what leaves them."""
    account = Account()
    service = Service(*parse_pipeline(PIPELINE, "soak.yaml").operators)
    sent = []
    for number in range(COUNT):
        one = made(3, number, STEP_MS)
        account.open(one)
        sent.append(one.record)
    out: list[tuple[str, Record]] = []
    for record in [*sent, *endings(3, COUNT, STEP_MS)]:
        step = service.take(record)
        out += [(LATE, aside.record) for aside in step.late]
        out += [(CLEANED, one) for one in left(step)]
    return account, out


def test_all_that_was_sent_is_accounted_for() -> None:
    account, out = came()
    for topic, record in out:
        account.close(topic, record)
    assert account.problems() == []
    assert account.sent == {"first": COUNT - 165, "twin": 150, "late": 15}
    assert account.came[LATE] == 15


def test_the_account_says_each_missing_doubled_or_wrong_record() -> None:
    account, out = came()
    counts = [record for topic, record in out if topic == CLEANED]
    late = [record for topic, record in out if topic == LATE]
    for record in [*counts[2:], counts[0]._replace(value=bytes(8))]:
        account.close(CLEANED, record)
    for record in [*late[1:], late[1]]:
        account.close(LATE, record)
    wrong = "is wrong or there twice"
    assert account.problems() == [
        f"cleaned has {counts[0].key!r} at {counts[0].timestamp_ms}, which {wrong}",
        f"cleaned.late has {late[1].key!r} at {late[1].timestamp_ms}, which {wrong}",
        "1 counts are missing",
        "1 late records are missing",
    ]


def test_a_level_grows_if_its_last_third_is_higher() -> None:
    flat = [Sample(minute, 100, 40, 10, 20, minute) for minute in range(9)]
    assert grown(flat) == []
    high = [*flat[:-1], flat[-1]._replace(disk_mib=12)]
    assert grown(high) == ["disk, MiB: 10 at most in the second third, 12 in the last"]
    assert grown(flat[:2]) == ["too few looks to tell"]


def test_the_page_says_what_is_wrong() -> None:
    account, _ = came()
    samples = [Sample(minute, 100, 40, 10, 20, 0) for minute in range(60)]
    outcome = Outcome(samples, account, 11, ["worker-1 ended with 1 by itself"])
    text = page(Plan(60, 3_000, 60, 300), outcome, "make soak")
    for line in problems(outcome):
        assert f"- {line}\n" in text
    assert picture(samples).count("<polyline") == 5


def test_a_soak_too_short_for_three_looks_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "soak", lambda *_: Outcome([], Account(), 0, []))
    monkeypatch.setattr(sys, "argv", ["soak", "--minutes", "0.2", "--results", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert "error: a soak of 0.2 minutes is too short to tell what grows" in capsys.readouterr().err


@pytest.mark.long("kill", why="it takes two minutes, and when it kills is up to the clock")
def test_a_soak_of_two_minutes_accounts_for_everything(tmp_path: Path) -> None:
    outcome = soak(tmp_path, Plan(2, 1_000, 60, 20), print)
    assert outcome.account.problems() == []
    assert outcome.unexpected == []
    assert outcome.kills > 3
