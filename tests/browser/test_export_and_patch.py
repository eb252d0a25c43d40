"""Letters leave as a file, and go on as a patched plan, from a list in a browser: those that were meant."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db.audit_rows import EntryFilter
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from tests.browser import incident
from tests.browser.test_every_page import LOOKS, violations
from tests.browser.world import World
from tests.processes import Served

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.window import Window

#: Processes start.
pytestmark = pytest.mark.timeout(300)

COMMA = '[{"op": "replace", "path": "/total", "value": "12.50"}]'


@pytest.fixture
def console(shop: World) -> Served:
    """Of a desk with three letters whose total has a comma, and one whose value is cut off; nothing else runs."""
    letters = [incident.died(shop, offset, 60_000 * offset) for offset in (2, 3, 4)]
    shop.record([incident.died(shop, 1, 1_000, value=b'{"total": "12'), *letters])
    return shop.console()


@pytest.fixture
def window(shop: World, console: Served, opens: Callable[..., "Window"]) -> Callable[..., "Window"]:
    """Opens a window on it."""
    return lambda role=Role.OPERATOR, **looks: opens(shop, console, role, **looks)


def exported(page: "Page", button: str) -> list[dict[str, Any]]:
    """The letters of the file that comes of a button, without the line on all of them."""
    with page.expect_download() as download:
        page.get_by_role("button", name=button).click()
    assert download.value.suggested_filename == "letters.jsonl"
    lines = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    return [line for line in lines if "offset" in line]


def test_the_letters_that_are_ticked_leave_as_a_file_and_the_trail_has_who_took_them(shop, window):
    page = window().page("/letters")
    for row in (2, 4):
        page.locator("tbody tr").nth(row - 1).get_by_role("checkbox").check()
    assert {each["offset"] for each in exported(page, "Export as JSON lines")} == {2, 4}
    (act,) = shop.desk.trail.page(EntryFilter(what=("export",))).entries
    assert act.by == "ann"
    assert "2 letters" in act.said
    # The page is as it was: nothing was sent, and the ticks are there.
    assert page.locator("tbody input:checked").count() == 2
    assert shop.desk.plans.latest() == []


def test_who_may_only_look_takes_all_that_match(shop, window):
    page = window(Role.VIEWER).page("/letters?until=90s")
    assert page.locator("tbody input").count() == 0
    assert {each["offset"] for each in exported(page, "Export 3 as JSON lines")} == {2, 3, 4}
    (act,) = shop.desk.trail.page(EntryFilter(what=("export",))).entries
    assert act.by == "vic"


def test_a_patch_is_tried_as_one_types_and_its_plan_shows_what_changes_and_what_is_left_out(shop, window):
    page = window().page("/letters")
    page.get_by_label("all 4 that match").check()
    page.get_by_role("button", name="Plan an edit…").click()
    page.get_by_role("heading", name="Patch and replay 4 letters").wait_for()
    send = page.get_by_role("button", name="Plan a replay of 4 letters, patched…")
    patch = page.locator("#e-v")
    patch.press_sequentially("[{")
    page.locator("#e-says .is-bad").wait_for()
    assert send.count() == 0
    patch.fill(COMMA)
    page.get_by_text("2 of 3 change, and their handlers would accept them").wait_for()
    page.get_by_text("would be left out").wait_for()
    found = {}
    for name, (width, scheme) in LOOKS.items():
        page.set_viewport_size({"width": width, "height": 844})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        found[name] = [*violations(page), *([f"{wide} px too wide"] if wide > 0 else [])]
    assert {name: each for name, each in found.items() if each} == {}
    page.get_by_label("Why, for the audit log").fill("the till writes a comma")
    send.click()
    page.wait_for_url("**/plans/1")
    page.get_by_role("heading", name="3").first.wait_for()
    plan = shop.desk.plans.one(1)
    assert plan.counts.edits["changed"] == 3
    assert (plan.why, plan.outcomes) == ("the till writes a comma", {"waiting": 3, "skipped": 1})
    # Nothing is sent before it is applied.
    assert {each.status for each in shop.desk.letters.page(LetterFilter(), 10).letters} == {LetterStatus.OPEN}
