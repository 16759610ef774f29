"""The soak as a page: a verdict, a table, and a picture of each level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.soak.levels import LEVELS, Sample, grown
from tests.soak.run import Outcome, Plan
from tests.soak.stream import CLEANED, LATE

PICTURE = "soak.svg"
_ROWS = 24
_WIDTH, _PANEL_HEIGHT, _MARGIN = 820, 130, 28
_LINE, _FRAME, _TEXT = "#1b6ca8", "#9aa5b1", "#6b7785"


def problems(outcome: Outcome) -> list[str]:
    """Say all that is wrong, nothing if all is well."""
    return [*outcome.account.problems(), *outcome.unexpected, *grown(outcome.samples)]


def page(plan: Plan, outcome: Outcome, command: str) -> str:
    """Write the page in Markdown."""
    sent, came = outcome.account.sent, outcome.account.came
    wrong = problems(outcome)
    load = f"{plan.minutes:.0f} minutes at {plan.records_per_s:,} records a second"
    lines = [
        "# The soak",
        "",
        f"`{command}`: {load}, whose time goes {plan.factor} times as fast as the clock.",
        "Three instances run `reorder`, `deduplicate`, a count by the minute and `suppress` over 8",
        "partitions, exactly once. Two of them are killed in turn, one every",
        f"{plan.kill_each_s:.0f} s, and start again: {outcome.kills} kills in all.",
        "",
        f"Sent were {sent['first']:,} records, {sent['twin']:,} duplicates of them and",
        f"{sent['late']:,} late ones; {came[CLEANED]:,} counts and {came[LATE]:,} late ones came.",
        "",
        "**Something is wrong:**" if wrong else "**All is accounted for, and nothing grows.**",
        *(f"- {line}" for line in wrong),
        "",
        "Memory and descriptors are of the instance that nobody kills, disk is of all three, and",
        "the broker keeps the changelogs. *Behind* records were sent and not committed yet.",
        "",
        f"| minute | {' | '.join(LEVELS.values())} |",
        "|--:" * (len(LEVELS) + 1) + "|",
        *(
            f"| {' | '.join(f'{value:,.0f}' for value in one)} |"
            for one in _thinned(outcome.samples)
        ),
        "",
        f"![what it takes over time]({PICTURE})",
    ]
    return "\n".join(lines) + "\n"


def _thinned(samples: Sequence[Sample]) -> Sequence[Sample]:
    return samples[:: max(1, len(samples) // _ROWS)]


def picture(samples: Sequence[Sample]) -> str:
    """Draw a panel for each level, all over the same minutes."""
    height = _PANEL_HEIGHT * len(LEVELS)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        ' font-family="system-ui, sans-serif" font-size="13">'
    )
    panels = [line for number, name in enumerate(LEVELS) for line in _panel(samples, name, number)]
    return "\n".join([head, *panels, "</svg>"]) + "\n"


def _panel(samples: Sequence[Sample], name: str, number: int) -> Iterator[str]:
    highest = max(1.0, *(getattr(one, name) for one in samples))
    bottom = (number + 1) * _PANEL_HEIGHT - _MARGIN / 2
    room = _PANEL_HEIGHT - 1.5 * _MARGIN
    until = samples[-1].minute
    points = " ".join(
        f"{_MARGIN + one.minute / until * (_WIDTH - 2 * _MARGIN):.1f},"
        f"{bottom - getattr(one, name) / highest * room:.1f}"
        for one in samples
    )
    title = f"{LEVELS[name]}: {highest:,.0f} at most, over {until:.0f} minutes"
    yield f'<text x="{_MARGIN}" y="{bottom - room - 6:.0f}" fill="{_TEXT}">{title}</text>'
    yield (
        f'<line x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{bottom}" y2="{bottom}"'
        f' stroke="{_FRAME}"/>'
    )
    yield f'<polyline fill="none" stroke="{_LINE}" stroke-width="2" points="{points}"/>'
