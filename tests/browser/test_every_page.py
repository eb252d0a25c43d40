"""What is promised of every page: it is accessible, in light and dark, and on a phone does not run sideways."""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import axe_playwright_python
import httpx2
import pytest

from bridge.console.pages.page_routes import PAGE_ROUTES, PageRoute
from bridge.deadletters.accounts.user_account import Role
from tests.browser.incident import CHARGE
from tests.browser.pages import ADDRESSES, NO_PAGES, REFUSED
from tests.browser.world import World
from tests.processes import Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.window import Window

#: Pixels, and the scheme.
LOOKS: Final[dict[str, tuple[int, Literal["light", "dark"]]]] = {
    "light": (1280, "light"),
    "dark": (1280, "dark"),
    "tablet": (1024, "light"),
    "phone": (390, "light"),
    "dark phone": (320, "dark"),
}
#: The looks in which the checker runs: it takes most of a test's time, and finds both schemes, both layouts in these.
CHECKED: Final = ("light", "dark phone")
#: WCAG 2.2 A and AA, and what the checker's makers recommend besides.
RULES: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


#: What others wrote (values, code), markup, and times as a filter or a range has them, which people type.
NO_WORDS_OF_OURS: Final = re.compile(
    r'<(pre|textarea|script)\b.*?</\1>|<section class="panel value".*?</section>|<ol class="code".*?</ol>|<[^>]*>'
    r"|write \S+ \(UTC\), \S+,|from \S+ to \S+",
    re.S,
)
#: A time as programs write it, such as 2026-11-21T02:45:39Z.
ISO_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")

#: Runs the checker; answers a line for each element that is at fault.
RUN: Final = """async tags => (await axe.run(
  {runOnly: tags, resultTypes: ["violations"], preload: false}
)).violations.flatMap(
  rule => rule.nodes.map(node => `${rule.id} (${rule.impact}): ${node.html.slice(0, 200)} ${node.failureSummary}`))"""


#: What is cut off at a panel's edge, and cannot be scrolled to: of a panel that clips no width says how much.
CUT: Final = """() => [...document.querySelectorAll(".panel *")].filter(each => {
  const panel = each.closest(".panel"), right = each.getBoundingClientRect().right;
  if (getComputedStyle(panel).overflowX !== "clip" || right <= panel.getBoundingClientRect().right + 1) return false;
  for (let over = each.parentElement; over !== panel; over = over.parentElement)
    if (getComputedStyle(over).overflowX !== "visible") return false;
  return true;
}).map(each => `cut off: ${each.outerHTML.slice(0, 120)}`)"""


#: Gives the shop's handlers names as long as some are.
LONG: Final = """() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    text.data = text.data.replaceAll("orders.handlers", "shop.demo.examples.orders.of_customers.handlers");
  }
}"""


@cache
def checker() -> str:
    """axe-core, as the package brings it along."""
    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


def violations(page: "Page") -> list[str]:
    """What the checker finds, a line each."""
    # By the protocol that drives the browser, which the page's policy does not concern.
    page.evaluate(f"if (!window.axe) {{ {checker()} }}")
    found: list[str] = page.evaluate(RUN, list(RULES))
    return found


def test_every_page_of_the_console_is_in_the_table():
    pages = {each.path for each in PAGE_ROUTES if each.method == "GET"}
    assert pages == ADDRESSES.keys() | NO_PAGES
    assert not ADDRESSES.keys() & NO_PAGES


#: A part of the title of each page that is about one thing.
TITLES: Final = {
    "/topics/{topic}": "shop.orders",
    "/topics/{topic}/halt": "shop.orders",
    "/topics/{topic}/resume": "shop.orders",
    "/handlers/{name}": CHARGE,
    "/handlers/{name}/policy": CHARGE,
    "/groups/{id:int}": f" in {CHARGE}",
    "/letters/{id:int}": ": shop.",
    "/letters/{id:int}/edit": "letter ",
    "/plans/{id:int}": "Plan ",
    "/admin/users/{id:int}": "User ",
}


def test_titles_name_what_a_page_is_about_and_no_page_shows_a_time_in_the_form_of_programs(
    night: World, night_console: Served, lies
):
    cookies = dict([night.cookie(Role.ADMIN)])
    titles: dict[str, set[str]] = defaultdict(set)
    raw = []
    with httpx2.Client(base_url=f"http://localhost:{night_console.port}", cookies=cookies) as client:
        for route, addresses in ADDRESSES.items():
            for address in addresses:
                answer = client.get(address.format(**vars(lies)))
                raw += [(address, time) for time in ISO_TIME.findall(NO_WORDS_OF_OURS.sub("", answer.text))]
                if answer.status_code == 200:
                    titles[route] |= set(re.findall("<title>([^<]*) · bridge</title>", answer.text))
    assert not raw
    assert titles.keys() > TITLES.keys()
    assert not [(route, title) for route in TITLES for title in titles[route] if TITLES[route] not in title]
    assert len(set.union(*titles.values())) == sum(map(len, titles.values())), "pages of two kinds have one title"


def look(page: "Page", name: str) -> None:
    width, scheme = LOOKS[name]
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")


@pytest.fixture(scope="module")
def tab(chromium: "Browser", night_console: Served) -> Iterator[tuple["Window", "Page"]]:
    """A window and its one page, for one address after another: it compiles the checker once."""
    from tests.browser.window import Window

    window = Window(chromium, f"http://localhost:{night_console.port}")
    window.bears("Failed to load resource: the server responded with a status of 4[0-9]{2}")
    yield window, window.page()
    window.close()


@pytest.mark.slow
@pytest.mark.parametrize("address", [*(each for some in ADDRESSES.values() for each in some), *REFUSED])
def test_a_page_is_accessible_and_does_not_run_sideways(tab: tuple["Window", "Page"], night: World, lies, address: str):
    opened, page = tab
    opened.faults.clear()
    opened.context.clear_cookies()
    if not address.startswith("/sign-in"):
        name, value = night.cookie(Role.ADMIN)
        opened.context.add_cookies([{"name": name, "value": value, "url": opened.address}])
    look(page, "light")
    page.goto(address.format(**vars(lies)))
    found = {}
    for name in LOOKS:
        look(page, name)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        cut = page.evaluate(CUT)
        checked = violations(page) if name in CHECKED else []
        found[name] = [*checked, *cut, *([f"{wide} px too wide"] if wide > 0 else [])]
    assert {name: each for name, each in found.items() if each} == {}
    opened.check()


@pytest.mark.parametrize(
    "address", ["/", "/groups", "/letters", "/letters/{total}?elsewhere=1", "/find?q=cust-90412", "/plans/{previewed}"]
)
def test_long_names_of_handlers_push_nothing_out_of_sight(window, lies, address):
    page = window().page(address.format(**vars(lies)))
    found = {}
    for width in (1280, 1024, 390, 320):
        page.set_viewport_size({"width": width, "height": 844})
        page.evaluate(LONG)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        found[width] = [*page.evaluate(CUT), *([f"{wide} px too wide"] if wide > 0 else [])]
    assert {width: each for width, each in found.items() if each} == {}


#: Buttons, tags and figures whose words run out of them; what is only for who hears a page is left out.
RUNS_OUT: Final = """() => [...document.querySelectorAll("button, .btn, .tag, .sums dd, .chips a")].filter(each => {
  if (!each.checkVisibility()) return false;
  const box = each.getBoundingClientRect(), words = document.createTreeWalker(each, NodeFilter.SHOW_TEXT);
  while (words.nextNode()) {
    if (words.currentNode.parentElement.closest(".sr, .more")) continue;
    const range = document.createRange();
    range.selectNodeContents(words.currentNode);
    const {left, right, width} = range.getBoundingClientRect();
    if (width && (left < box.left - 1 || right > box.right + 1)) return true;
  }
  return false;
}).map(each => `runs out: ${each.outerHTML.slice(0, 120)}`)"""


@pytest.mark.parametrize(
    "address",
    ["/groups/{group}", "/letters?rows=25", "/letters/{total}", "/plans/{previewed}", "/topics/shop.orders/halt"],
)
def test_no_words_run_out_of_their_button_or_figure(window, lies, address):
    page = window().page(address.format(**vars(lies)))
    page.evaluate(LONG)
    found = {}
    for width in (360, 768, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 844})
        found[width] = page.evaluate(RUNS_OUT)
    assert {width: each for width, each in found.items() if each} == {}


#: Panels whose content is wider than they are.
SIDEWAYS: Final = """() => [...document.querySelectorAll(".panel")].filter(
  each => each.scrollWidth > each.clientWidth + 1).map(each => each.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("address", ["/", "/groups"])
def test_states_and_actions_are_in_view_at_every_width(window, address):
    page = window().page(address)
    page.evaluate(LONG)
    found = {}
    for width in (360, 600, 768, 960, 961, 1024, 1100, 1101, 1240, 1440, 1920):
        page.set_viewport_size({"width": width, "height": 844})
        found[width] = [*page.evaluate(CUT), *page.evaluate(SIDEWAYS)]
    assert {width: each for width, each in found.items() if each} == {}


def find_route(address: str) -> PageRoute | None:
    """The route that an address leads to, whatever its method."""
    path = address.partition("?")[0].partition("#")[0]
    for route in PAGE_ROUTES:
        if re.fullmatch(re.sub(r"{\w+:int}", "[0-9]+", re.sub(r"{\w+}", "[^/]+", route.path)), path):
            return route
    return None


def test_a_viewer_is_shown_no_link_and_no_form_of_what_it_may_not_do(night: World, night_console: Served, lies):
    cookies, shown = dict([night.cookie(Role.VIEWER)]), set()
    with httpx2.Client(base_url=f"http://localhost:{night_console.port}", cookies=cookies) as client:
        for address in (address.format(**vars(lies)) for some in ADDRESSES.values() for address in some):
            answer = client.get(address)
            if answer.status_code != 200 or address.startswith(("/sign-in", "/welcome")):
                continue
            for target in re.findall(r'(?:href|action|formaction)="(/[^"]*)"', answer.text):
                route = find_route(unescape(target))
                if route is not None and route.role > Role.VIEWER:
                    shown.add((address, target))
    assert not shown
