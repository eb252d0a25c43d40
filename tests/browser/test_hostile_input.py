"""What is promised of what others write: in a browser it is text, by escaping and by the page's policy both."""

from urllib.parse import quote

import pytest

from tests.browser.window import until
from tests.web import hostile_input

#: What runs, loads or frames, and is not the console's own.
STRANGE = "script:not([src^='/static/']), img, iframe, object, embed, base, style, [style], [onerror], [onclick]"
TEXT = quote(hostile_input.TEXT)


@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/groups?show=all",
        "/letters?rows=25",
        f"/letters?text={TEXT}&key={TEXT}&handler={TEXT}",
        "/letters/{hostile}?elsewhere=1",
        "/letters/{hostile}?value=sent",
        "/letters/{hostile}?value=hex",
        f"/find?q={TEXT}",
        f"/sign-in?then={TEXT}",
        f"/activity?who={TEXT}",
        f"/topics/{TEXT}/halt",
        f"/handlers/{TEXT}/policy",
        f"/{TEXT}",
    ],
)
def test_what_others_wrote_is_text_in_every_page_that_shows_it(window, lies, address):
    opened = window()
    opened.bears("Failed to load resource: the server responded with a status of 40[0-9]")
    page = opened.page(address.replace("{hostile}", str(lies.hostile)))
    assert page.locator(STRANGE).count() == 0
    assert "49" not in page.locator("h1").inner_text()
    assert not hostile_input.UNSEEN.search(page.locator("main").inner_text())


def test_where_escaping_had_failed_the_policy_would_let_nothing_run(window):
    opened = window()
    page = opened.page("/account")
    opened.bears("")
    page.evaluate("text => { document.querySelector('main').innerHTML = text; }", hostile_input.TEXT)
    page.evaluate("""() => {
      document.body.append(Object.assign(document.createElement("script"), {textContent: "window.ran = 1"}));
      document.body.insertAdjacentHTML("beforeend", "<a id=x href='javascript:window.ran=1'>x</a>");
      document.querySelector("#x").click();
    }""")
    until(page, lambda: len(opened.faults) >= 3)
    assert page.evaluate("window.ran") is None
    assert not [each for each in opened.faults if each.startswith("dialog")]
