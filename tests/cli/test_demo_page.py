"""The demo's page, of values that are written here, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.services.cli.demo.counted import Count
from headrace.services.cli.demo.page import Shown, page
from headrace.services.cli.demo.priced import Alert, Priced
from tests.cli.browser import BROWSERS, opened

SHOWN = Shown(
    clicks=[(0, "fate-counted"), (4_000, "fate-duplicate"), (1_000, "fate-late")],
    counts=[Count("ann", 0, 10, 5), Count("bob", 10, 20, 2)],
    alerts=[Alert("ann", 0, 10, 5, 4)],
    prices={"bolt": [(0, 250), (5_000, 300)]},
    priced=[
        Priced("o1", "bolt", 1_000, 2, 250, (250,)),
        Priced("o2", "bolt", 2_000, 1, 250, (300, 300)),
    ],
)


def test_the_page_marks_what_the_raw_join_got_wrong() -> None:
    text = page(SHOWN)
    assert text.count("<figure") == 3
    assert text.count('class="right"') == 1 + len(SHOWN.priced), "one of them in the legend"
    assert text.count('class="wrong"') >= 1
    assert "the raw join is wrong about 1" in text


@pytest.mark.skipif(not BROWSERS, reason="no browser is here; install chromium")
def test_a_browser_shows_the_page(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(SHOWN), "utf-8")
    shown = opened(file, tmp_path)
    assert shown.count("<figure") == 3
    assert 'class="alert"' in shown
