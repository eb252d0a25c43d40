"""What is promised of a value in a browser: it is walked, folded and copied by keys, and as it is in its record."""

import json

import pytest

from tests.browser.window import until

#: What has the focus.
FOCUSED = "document.activeElement.textContent"


@pytest.fixture
def copies(window, lies):
    """A page of a letter, and a function that gives what was copied last."""
    opened = window()
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = opened.page(f"/letters/{lies.total}")

    def copied(within=""):
        return until(page, lambda: within in (text := page.evaluate("navigator.clipboard.readText()")) and text)

    return page, copied


def test_a_value_is_walked_folded_and_copied_by_keys(copies):
    page, copied = copies
    page.locator(".json .r").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUSED).startswith('"customer": {')
    page.keyboard.press("Y")
    assert copied("/") == "/customer"
    page.keyboard.press("y")
    assert json.loads(copied("{"))["name"] == "Zoë Ågren"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUSED).startswith('"total":')
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED).startswith('"id":')
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(FOCUSED).startswith('"customer": {')
    assert page.locator("#said").inner_text().startswith("Copied")


def test_a_number_beyond_doubles_is_copied_digit_by_digit_and_a_string_without_its_quotes(copies):
    page, copied = copies
    page.get_by_text("9007199254740993").click()
    page.get_by_role("button", name="Copy value").click()
    assert copied("9007") == "9007199254740993"
    page.get_by_role("button", name="Copy path").click()
    assert copied("/") == "/trace"
    page.get_by_text("EUR").click()
    page.get_by_role("button", name="Copy value").click()
    assert copied("EUR") == "EUR"


def test_a_field_of_a_value_leads_to_the_letters_that_have_it_too(copies, lies):
    page, _ = copies
    link = page.get_by_role("link", name="Letters with this field")
    assert not link.is_visible()
    page.get_by_text("EUR").click()
    with page.expect_navigation():
        link.click()
    assert "currency=EUR" in page.locator(".head .chips").inner_text()
    assert page.locator(f'table.letters a[href^="/letters/{lies.total}?"]').count() == 1


def test_all_of_a_value_is_folded_and_unfolded_by_a_button(copies):
    page, _ = copies
    page.get_by_role("button", name="Fold all", exact=True).click()
    assert page.locator(".json details[open]").count() == 1
    page.get_by_role("button", name="Unfold all").click()
    assert page.locator(".json details:not([open])").count() == 0


def test_a_header_is_copied_by_its_button(copies):
    page, copied = copies
    page.get_by_role("button", name="Copy the value of content-type").click()
    assert copied("application") == "application/json"


def test_what_is_shown_by_its_number_is_copied_as_the_character_that_it_is(window, lies):
    opened = window()
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = opened.page(f"/letters/{lies.hostile}?value=sent")
    page.get_by_role("button", name="Copy value").click()
    text = until(page, lambda: page.evaluate("navigator.clipboard.readText()"))
    assert "\u202exod.ecnavda\u202c\u2066\x1b[31m\x07\x08\u200b\ufeff\u00ad\x85\u2028" in text
    assert page.locator(".esc").count() > 9


def test_without_a_script_a_value_folds_and_is_searched_and_no_button_does_nothing(window, lies):
    page = window(java_script_enabled=False).page(f"/letters/{lies.total}")
    page.locator(".json summary").nth(1).click()
    assert page.locator(".json details:not([open])").count() == 1
    page.get_by_label("Search in the value").fill("ågren")
    page.get_by_role("button", name="Search", exact=True).click()
    assert page.locator("mark.hit").inner_text() == "Ågren"
    assert page.url.endswith("#match")
    assert page.get_by_role("button", name="Copy").count() == 0


def test_a_long_value_has_a_box_of_thirty_lines_until_all_of_it_is_asked_for(window, lies):
    page = window().page(f"/letters/{lies.bytes_}?value=hex")
    box = page.locator(".box")
    line = box.locator("tr").nth(1).bounding_box()["height"]
    assert box.bounding_box()["height"] < 32 * line
    page.get_by_label("All lines").check()
    assert box.bounding_box()["height"] > 40 * line
