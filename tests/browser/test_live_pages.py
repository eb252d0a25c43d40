"""What is promised of a page that is left open: it is not wrong, and takes nothing from who works in it."""

from dataclasses import replace

import pytest

from bridge.deadletters.model.bulk_plan import PlanKind
from bridge.deadletters.model.letter_filter import LetterFilter
from tests.browser.incident import CHARGE, planned, totals, went_out
from tests.browser.window import until

#: Notes each stream of events that a page opens.
STREAMS = """
  const Real = EventSource;
  window.streams = [];
  window.EventSource = class extends Real { constructor(url) { super(url); window.streams.push(this); } };
"""
OPEN = "streams.filter(each => each.readyState < 2).length"


def watched(opens, world, console, path):
    """A page whose streams are counted and whose clock can be put forward, once it is live."""
    opened = opens(world, console)
    opened.bears("ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
    page = opened.page()
    page.add_init_script(STREAMS)
    page.clock.install()
    page.goto(path)
    until(page, lambda: live(page) == "Live")
    return page


def live(page):
    return page.locator("#live").inner_text()


def hide(page, hidden):
    page.evaluate(
        """hidden => {
          Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


@pytest.fixture
def console(shop):
    return shop.console()


@pytest.fixture
def plan(shop):
    """A canary that is applied, of 30 letters."""
    shop.record(list(totals(shop))[:30])
    made = planned(shop, PlanKind.REPLAY, LetterFilter(handlers=(CHARGE,)), canary=True)
    shop.desk.plans.approve(made, "ann")
    return made


def test_numbers_of_the_overview_change_in_place_and_its_rows_stay(shop, console, opens):
    letters = list(totals(shop))
    shop.record(letters[:2])
    page = watched(opens, shop, console, "/")
    row = page.locator("tr.below", has_text=CHARGE).element_handle()
    assert not page.locator("#p-again").is_visible()
    page.locator("tr.below a", has_text="policy").first.focus()
    shop.record(letters[2:5])
    until(page, lambda: row.query_selector("td[data-l=Dead]").inner_text() == "5")
    assert row.evaluate("row => row.isConnected")
    assert "/policy" in page.evaluate("document.activeElement.getAttribute('href')")


def test_a_plan_goes_on_under_who_types_and_what_has_the_focus_is_left_alone(shop, console, opens, plan):
    page = watched(opens, shop, console, f"/plans/{plan}")
    page.locator("#p-why").fill("half a sen")
    page.locator("#p-why").focus()
    went_out(shop, plan, range(1, 7), done=range(1, 6), dead=(6,))
    until(page, lambda: page.locator("#p-sums dd").first.inner_text().startswith("5"))
    assert "1" in page.locator("#p-waves tbody tr").first.inner_text()
    assert page.evaluate("document.activeElement.id") == "p-why"
    assert page.locator("#p-why").input_value() == "half a sen"
    dead = page.locator("#p-again-list a")
    until(page, lambda: dead.count() == 1)
    dead.focus()
    kept = dead.element_handle()
    went_out(shop, plan, range(7, 9), done=(7,), dead=(8,))
    until(page, lambda: page.locator("#p-sums dd").first.inner_text().startswith("6"))
    assert kept.evaluate("link => link.isConnected && link === document.activeElement")
    page.locator("#p-why").focus()
    until(page, lambda: dead.count() == 2)


def test_a_page_that_is_held_is_still_until_it_is_let_go(shop, console, opens, plan):
    page = watched(opens, shop, console, f"/plans/{plan}")
    page.keyboard.press(".")
    assert live(page) == "Held still"
    went_out(shop, plan, (1,), done=(1,))
    page.wait_for_timeout(2_500)
    assert page.locator("#p-sums dd").first.inner_text().startswith("0")
    page.keyboard.press(".")
    until(page, lambda: page.locator("#p-sums dd").first.inner_text().startswith("1"))


def test_who_sees_nothing_new_is_told_since_when_and_it_comes_back_by_itself(shop, console, opens, plan):
    page = watched(opens, shop, console, f"/plans/{plan}")
    console.kill()
    until(page, lambda: page.evaluate(OPEN) == 0)
    page.clock.fast_forward(16_000)
    until(page, lambda: live(page).startswith("Not live since"))
    assert "is-stale" in page.locator("#live").get_attribute("class")
    assert page.locator(".old[data-number]").count() == page.locator("[data-number]").count() > 0
    shop.console(console.port)
    went_out(shop, plan, (1,), done=(1,))
    page.clock.fast_forward(60_000)
    until(page, lambda: live(page) == "Live", 40)
    until(page, lambda: page.locator("#p-sums dd").first.inner_text().startswith("1"))
    assert page.locator(".old").count() == 0


def test_a_page_whose_figures_are_old_does_not_say_live_however_often_it_hears_them(shop, console, opens):
    page = watched(opens, shop, console, "/")
    page.evaluate("streams.at(-1).close()")
    hear = """age => streams.at(-1).onmessage({data: JSON.stringify({
      age, act: "", over: false, parts: {}, release: document.querySelector("[data-live]").dataset.release})})"""
    page.evaluate(hear, 14)
    assert live(page) == "Live"
    page.evaluate(hear, 16)
    assert live(page).startswith("Not live since")
    assert page.locator(".old[data-number]").count() > 0
    page.evaluate(hear, 2)
    assert live(page) == "Live"
    assert page.locator(".old").count() == 0


def test_a_page_that_nobody_sees_hangs_up_and_is_live_again_when_it_is_seen(shop, console, opens, plan):
    page = watched(opens, shop, console, f"/plans/{plan}")
    hide(page, True)
    page.clock.fast_forward(30_000)
    assert page.evaluate(OPEN) == 1
    page.clock.fast_forward(31_000)
    until(page, lambda: page.evaluate(OPEN) == 0)
    went_out(shop, plan, (1,), done=(1,))
    hide(page, False)
    until(page, lambda: page.locator("#p-sums dd").first.inner_text().startswith("1"))
    assert live(page) == "Live"
    assert page.evaluate(OPEN) == 1


def test_a_plan_that_has_ended_is_said_to_and_is_asked_for_no_more(shop, console, opens, plan):
    page = watched(opens, shop, console, f"/plans/{plan}")
    shop.desk.plans.stop(plan, "bob", "enough")
    until(page, lambda: page.locator("#p-again").is_visible())
    assert page.locator("#p-again").inner_text() == "This plan has ended: load the page again"
    assert not page.get_by_role("button", name="Stop plan").is_visible()


def test_what_somebody_types_stays_when_their_plan_ends(shop, console, opens, plan):
    page = watched(opens, shop, console, f"/plans/{plan}")
    page.locator("#p-why").fill("half a sen")
    page.locator("h1").click()
    shop.desk.plans.stop(plan, "bob", "enough")
    until(page, lambda: page.locator("#p-again").is_visible())
    assert page.locator("#p-why").is_visible()
    assert page.locator("#p-why").input_value() == "half a sen"


def test_a_list_says_how_many_have_come_and_moves_no_row(shop, console, opens):
    letters = list(totals(shop))
    shop.record(letters[:5])
    page = watched(opens, shop, console, "/letters?status=any")
    records = page.locator("table.letters tbody th").all_inner_texts()
    page.locator("table.letters tbody input").first.check()
    later = max(each.failed_at for each in letters[:5]) + 1
    shop.record([replace(each, failed_at=later) for each in letters[5:7]])
    until(page, lambda: "2 new letters." in page.locator("#l-more").inner_text())
    assert page.locator("table.letters tbody th").all_inner_texts() == records
    assert page.locator("table.letters tbody input").first.is_checked()
    page.get_by_role("link", name="Show them").click()
    until(page, lambda: page.locator("table.letters tbody th").count() == 7)
