"""What is promised of very many letters: they are walked in a browser as a few are, and one plan has all of them."""

import pytest

from tests.browser.incident import CHARGE, MINUTE, died

#: Letters, and how many are recorded at once.
MANY, AT_ONCE = 10_000, 5_000
#: Letters of a page, and pages that are walked.
ROWS, PAGES = 100, 8


@pytest.mark.slow
def test_ten_thousand_letters_are_walked_page_by_page_and_back_and_planned_as_a_whole(shop, opens):
    for first in range(0, MANY, AT_ONCE):
        # Not in the order in which they failed.
        shop.record([died(shop, at, MINUTE + (at * 7_919) % MANY * 100) for at in range(first, first + AT_ONCE)])
    page = opens(shop, shop.console()).page(f"/letters?handler={CHARGE}&rows={ROWS}")
    assert page.locator("h1").inner_text() == f"{MANY:,} letters match"
    assert f"The {ROWS} newest of {MANY:,}" in page.locator(".pager").inner_text()
    walked = [records(page)]
    for _ in range(PAGES - 1):
        follow(page, "Older")
        walked.append(records(page))
    seen = [each for some in walked for each in some]
    assert len(set(seen)) == len(seen) == ROWS * PAGES
    for some in reversed(walked[:-1]):
        follow(page, "Newer")
        assert records(page) == some
    assert page.get_by_role("link", name="Newer").count() == 0
    page.get_by_label("that match").check()
    page.get_by_role("button", name="Plan a replay…").click()
    page.wait_for_url("**/plans/*")
    assert page.locator("h1").inner_text() == f"Replay {MANY:,} letters?"
    assert page.get_by_label("Canary").is_checked()


def records(page):
    return page.locator("table.letters tbody th").all_inner_texts()


def follow(page, name):
    """To the page that a link leads to, once all of it is there."""
    with page.expect_navigation():
        page.get_by_role("link", name=name).click()
