"""What is promised of help: every page has one, in a few sentences, with a section of the documentation that exists."""

import re
from html import unescape
from pathlib import Path

import pytest

from bridge.console.page_help import PAGE_HELP, find_help
from bridge.console.pages.page_routes import PAGE_ROUTES
from bridge.deadletters.accounts.user_account import Role
from tests.browser.pages import ADDRESSES

DOCS = Path(__file__).parents[2]
#: What is no page in the table of all pages, but shows one where something is masked.
ONLY_MASKED = {"/admin/unmask"}


def anchors(file: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", file.read_text(), re.M)
    return {re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_page_has_a_help_and_no_help_is_of_no_page():
    assert PAGE_HELP.keys() == ADDRESSES.keys() | ONLY_MASKED


def test_a_form_that_shows_a_page_shows_its_help():
    parts = {"/events", "/healthz"}
    without = {page.path for page in PAGE_ROUTES if find_help(page.path) is None}
    assert without <= parts | {"/sign-out", "/admin/mask", "/admin/issued/sign-out", "/views", "/views/{id:int}/remove"}


@pytest.mark.parametrize("path", PAGE_HELP)
def test_a_help_is_two_to_five_sentences_or_words_and_leads_to_a_section_that_exists(path):
    help_ = PAGE_HELP[path]
    sentences = re.split(r"(?<=[.?])\s", help_.answers)
    assert 2 <= len(sentences) + len(help_.words) <= 7
    file, _, section = help_.docs.partition("#")
    assert section in anchors(DOCS / file)


def test_the_page_shows_its_help_without_a_script(browser):
    page = browser(Role.VIEWER).get("/groups").text
    (shown,) = re.findall(r'<aside id="help" popover [^>]*>.*?</aside>', page, re.S)
    assert 'popovertarget="help"' in page
    said = " ".join(unescape(re.sub(r"<[^>]+>", " ", shown)).split())
    for words in (PAGE_HELP["/groups"].answers, *PAGE_HELP["/groups"].words.values(), "docs/how-to/console.md"):
        assert words in said


def test_a_page_that_is_not_there_has_no_help_and_says_so_all_the_same(browser):
    answer = browser().get("/nowhere")
    assert answer.status_code == 404
    assert 'id="help"' not in answer.text
