"""What is promised to who has no mouse: the keyboard does all that the console does, and no key changes anything."""

import re

import pytest

from bridge.deadletters.model.bulk_plan import PlanState
from tests.browser.incident import CHARGE, mail, totals
from tests.browser.window import until
from tests.web.site import PASSWORD

FOCUSED = "document.activeElement.outerHTML.slice(0, 300)"
#: Whether what has the focus is seen, on the screen, and shown to have it.
VISIBLE = """() => {
  const at = document.activeElement, box = at.getBoundingClientRect(), style = getComputedStyle(at);
  return at !== document.body && box.width > 0 && box.bottom > 0 && box.top < innerHeight
    && (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1 || style.boxShadow !== "none");
}"""


def focused(page):
    """The address of the link that has the focus."""
    return page.evaluate("document.activeElement.getAttribute('href')")


def test_letters_are_walked_ticked_and_opened_by_keys(window):
    page = window().page("/letters?rows=25")
    links = [each.get_attribute("href") for each in page.locator("table.letters tbody th a").all()]
    page.keyboard.press("j")
    assert focused(page) == links[0]
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert focused(page) == links[2]
    assert page.evaluate(VISIBLE)
    page.keyboard.press("k")
    assert focused(page) == links[1]
    page.keyboard.press("x")
    assert page.locator(".pick :checked").count() == 1
    assert page.locator("#ticked").inner_text() == "1"
    assert page.locator("#these").is_checked()
    for key in ("j", "j", "Shift+x"):
        page.keyboard.press(key)
    assert page.locator(".pick :checked").count() == 3
    page.keyboard.press("x")
    assert page.locator(".pick :checked").count() == 2
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{links[3]}")
    page.keyboard.press("j")
    page.wait_for_url(f"**{links[4]}")
    page.keyboard.press("k")
    page.wait_for_url(f"**{links[3]}")
    page.keyboard.press("u")
    page.wait_for_url("**/letters?**")


def test_pages_are_gone_to_by_two_keys_and_what_is_typed_is_no_key(window):
    page = window().page("/audit")
    for key, path in (
        ("g", "/groups"),
        ("l", "/letters"),
        ("p", "/plans"),
        ("a", "/audit"),
        ("w", "/activity"),
        ("o", "/"),
    ):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(re.compile(rf":\d+{path}(\?.*)?$"))
    page.keyboard.press("/")
    page.keyboard.type("gl?x.u")
    assert page.locator("#find").input_value() == "gl?x.u"
    assert page.url.endswith("/")


def test_the_keys_are_listed_by_a_key_and_the_list_goes_away_by_escape(window):
    page = window().page("/groups")
    assert not page.locator("#keys").is_visible()
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()


def test_what_acts_is_gone_to_by_a_key_and_not_done(window, lies, night):
    before = night.desk.plans.latest()
    page = window().page(f"/letters/{lies.total}")
    for key, words in (("r", "Replay as it is"), ("e", "Edit and replay"), ("n", "textarea")):
        page.locator("h1").click()
        page.keyboard.press(key)
        assert words in page.evaluate(FOCUSED)
        assert page.evaluate(VISIBLE)
    assert page.url.endswith(f"/letters/{lies.total}")
    assert night.desk.plans.latest() == before


@pytest.mark.parametrize(
    "address", ["/letters?rows=25", "/letters/{total}", "/groups/{group}", "/plans/{previewed}", "/"]
)
def test_no_key_changes_anything(window, lies, night, address):
    opened = window()
    asked = []
    opened.context.on("request", lambda request: asked.append(request) if request.method != "GET" else None)
    page = opened.page(address.format(**vars(lies)))
    # Those that lead elsewhere come after those that do not.
    for key in "abcdfhilmnpqrstvwxyz/.?0123456789 Xeokju":
        page.keyboard.press(key)
        page.keyboard.press("Escape")
    page.wait_for_timeout(300)
    assert [f"{each.method} {each.url}" for each in asked] == []


def test_each_thing_that_tab_comes_to_is_seen_to_have_the_focus(window, lies):
    page = window().page(f"/letters/{lies.total}")
    unseen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        if not page.evaluate(VISIBLE):
            unseen.append(page.evaluate(FOCUSED))
    assert unseen == []


def test_a_plan_is_made_and_applied_without_a_mouse(shop, opens):
    shop.record(list(totals(shop))[:3])
    page = opens(shop, shop.console(), None).page("/letters")
    # Chromium gives the focus as it draws, which a busy machine does late.
    page.wait_for_function("document.activeElement.name === 'name'")
    page.keyboard.type("ann")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/letters")
    for key in ("j", "x", "j", "x", "r", "Enter"):
        page.keyboard.press(key)
    page.wait_for_url("**/plans/*")
    assert "Replay 2 letters?" in page.locator("h1").inner_text()
    page.get_by_label("Why, for the audit log").focus()
    page.keyboard.type("1.5.1 takes a comma")
    page.keyboard.press("Tab")
    assert "Replay 2 letters" in page.evaluate(FOCUSED)
    page.keyboard.press("Enter")
    page.wait_for_url("**/plans/*")
    (plan,) = until(page, lambda: [each for each in shop.desk.plans.latest() if each.state is PlanState.APPLYING])
    assert (plan.why, plan.by, plan.counts.letters) == ("1.5.1 takes a comma", "ann", 2)
    assert plan.counts.handlers == {CHARGE: {"permanent": 2}}


def test_a_bar_of_a_chart_says_its_count_at_the_focus_and_leads_to_its_letters(window):
    page = window().page(f"/handlers/{CHARGE}")
    bars = page.locator("[id$=-hour] .bars[data-to]").last
    bars.focus()
    last = bars.get_attribute("aria-valuetext")
    page.keyboard.press("ArrowLeft")
    before = bars.get_attribute("aria-valuetext")
    assert before != last
    assert page.locator(".bars .tip").inner_text() == before
    page.keyboard.press("End")
    assert bars.get_attribute("aria-valuetext") == last
    bars.hover()
    assert bars.get_attribute("aria-valuetext") not in (before, last)
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/letters\?handler=.*&since=\d{4}-\d\d-\d\dT\d\d:\d\d&until=\d{4}"))
    assert page.locator("h1").count() == 1


def test_percentiles_and_histogram_are_read_by_the_arrow_keys_and_a_range_is_chosen_by_a_link(window):
    page = window().page(f"/handlers/{CHARGE}")
    percentiles, histogram = page.locator("#h-took .bars").all()
    percentiles.focus()
    page.keyboard.press("Home")
    assert re.fullmatch(
        r"\d\d:\d\d UTC: [\d,]+ runs?, p50 \S+ m?s, p95 \S+ m?s, p99 \S+ m?s", page.locator(".bars .tip").inner_text()
    )
    histogram.focus()
    page.keyboard.press("ArrowRight")
    assert re.fullmatch(r"\S+ to \S+ m?s: [\d,]+ runs?, \S+ %", page.locator(".bars .tip").inner_text())
    page.get_by_role("navigation", name="Range by the hour").get_by_role("link", name="7 d").press("Enter")
    page.wait_for_url("**?charts=7d")
    week = page.locator("#h-day .bars").first
    assert len((week.get_attribute("data-counts") or "").split(" ")) == 168
    week.focus()
    page.keyboard.press("End")
    assert re.fullmatch(r"\d\d \w+, \d\d:00 UTC: [\d,]+", page.locator(".bars .tip").inner_text())
    backlog = page.locator("#h-hour .bars").last
    backlog.focus()
    page.keyboard.press("End")
    assert page.locator(".bars .tip").inner_text().endswith("UTC: not known"), "the minute is not over"


def test_a_theme_that_is_chosen_holds_on_the_next_page(window):
    page = window().page("/groups")
    page.locator("button.who").press("Enter")
    page.locator("#theme").get_by_role("button", name="Dark").press("Enter")
    page.goto(page.url.replace("/groups", "/plans"))
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.locator("button.who").press("Enter")
    assert page.locator("#theme [aria-pressed=true]").inner_text() == "Dark"
    page.locator("#theme").get_by_role("button", name="As the system").press("Enter")
    page.reload()
    assert page.locator("html").get_attribute("data-theme") is None


def test_several_groups_are_ticked_and_planned_by_keys(shop, opens):
    shop.record([*list(totals(shop))[:3], *list(mail(shop))[:2]])
    page = opens(shop, shop.console()).page("/groups")
    for key in ("j", "x", "j", "x"):
        page.keyboard.press(key)
    assert page.locator("#ticked").inner_text() == "2"
    page.keyboard.press("r")
    assert "Plan a replay" in page.evaluate(FOCUSED)
    assert page.evaluate(VISIBLE)
    page.keyboard.press("Enter")
    page.wait_for_url("**/plans/*")
    assert "Replay 5 letters?" in page.locator("h1").inner_text()


def test_what_is_folded_on_the_overview_is_unfolded_by_keys(window):
    page = window().page("/")
    parked = page.locator("details.parked").first
    parked.locator("summary").focus()
    assert page.evaluate(VISIBLE)
    page.keyboard.press("Enter")
    assert parked.locator("dt").first.is_visible()


def test_problems_are_walked_and_opened_by_keys(window):
    page = window().page("/")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('.problems') !== null")
    assert page.evaluate(VISIBLE)
