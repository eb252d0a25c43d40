"""What the documentation names is there."""

import re
from pathlib import Path
from typing import Final

import pytest

from bridge.problems.problem import Problem
from bridge.problems.problem_table import PROBLEM_TABLE

ROOT: Final = Path(__file__).parents[2]
CONTRIBUTORS: Final = ROOT / "docs" / "contributors"
PAGES: Final = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("lossless/*.md")]
)
#: A file of this repository, by its whole path.
FILE: Final = re.compile(
    r"(?<![\w/.~-])(?:bridge|tasks|lossless|tests|benchmarks|examples|docs)/[\w./-]+\.(?:py|lua|md|toml|yml)\b"
)
#: A test of this repository, by its file and its name.
TEST: Final = re.compile(r"\b(tests/[\w/]+\.py)::(\w+)")
#: A folder of the product, named by itself.
FOLDER: Final = re.compile(r"`((?:bridge|tasks|lossless)/[\w/]*/)`")
LINK: Final = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
TO_HEADING: Final = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
#: What a page says has been, or would be a user's own.
OF_OTHERS: Final = {"CHANGELOG.md"}


def missing(page: Path, names: list[str], base: Path) -> list[str]:
    return [f"{page.name}: {name}" for name in names if not (base / name).exists()]


def headings(page: Path) -> set[str]:
    """What a link to a page may name, as GitHub makes it of headings."""
    text = page.read_text()
    made = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).strip().replace(" ", "-") for each in made} | {
        *re.findall(r'<a id="([^"]+)"', text)
    }


def sentences(text: str) -> list[str]:
    """Return the sentences of a page: each cell of a table, and each item of a list, begins one."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"^\|(.*)\|$", lambda row: "\n\n" + row[1].replace(" | ", "\n\n"), text, flags=re.MULTILINE)
    # What stands in brackets is read by itself, and code is a word.
    text = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", text))
    text = re.sub(r" \([^()]*\)", "", text)
    return re.split(r"(?<=[.?!])\**\s+|\n\n+|\n(?=- |\d+\. |#)", text)


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.name)
def test_a_page_begins_with_who_needs_it(page: Path):
    assert re.match(r"# .+\n\nFor ", page.read_text())


def test_every_file_that_a_page_names_is_there():
    pages = [page for page in PAGES if page.name not in OF_OTHERS]
    assert [gone for page in pages for gone in missing(page, FILE.findall(page.read_text()), ROOT)] == []


def test_every_link_to_a_file_leads_to_one():
    links = {page: [link for link in LINK.findall(page.read_text()) if "://" not in link] for page in PAGES}
    assert [gone for page, found in links.items() for gone in missing(page, found, page.parent)] == []


def test_every_link_to_a_heading_leads_to_one():
    gone = [
        f"{page.name}: {link}"
        for page in PAGES
        for name, heading in TO_HEADING.findall(page.read_text())
        if (link := f"{name}#{heading}") and "://" not in name and heading not in headings(page.parent / (name or page))
    ]
    assert gone == []


def test_every_page_that_the_product_names_is_there():
    """Errors, refusals and comments send people to pages."""
    files = [file for top in ("bridge", "tasks", "lossless", "deploy") for file in (ROOT / top).rglob("*.*")]
    texts = {file: file.read_text() for file in files if file.suffix in {".py", ".lua", ".html", ".yml"}}
    pages = {file: re.findall(r"docs/[\w/-]+\.md", text) for file, text in texts.items()}
    assert [gone for file, found in pages.items() for gone in missing(file, found, ROOT)] == []


@pytest.mark.parametrize("row", PROBLEM_TABLE, ids=lambda row: row.identifier)
def test_the_runbook_of_a_problem_leads_to_its_entry(row):
    page, _, heading = Problem("It is down.", row.kind, "down").data()["runbook"].partition("#")
    assert heading in headings(ROOT / page)


def test_every_test_that_a_page_names_is_there():
    named = [found for page in PAGES if page.name not in OF_OTHERS for found in TEST.findall(page.read_text())]
    assert named
    assert [f"{file}::{test}" for file, test in named if f"def {test}(" not in (ROOT / file).read_text()] == []


@pytest.mark.parametrize(("name", "most"), [("internals.md", 200), ("style.md", 80)])
def test_a_contributor_reads_a_page_in_one_sitting(name: str, most: int):
    assert len((CONTRIBUTORS / name).read_text().splitlines()) <= most


def test_internals_name_the_file_of_each_step():
    assert len(set(FILE.findall((CONTRIBUTORS / "internals.md").read_text()))) > 80


def test_every_room_that_internals_name_is_there():
    named = FOLDER.findall((CONTRIBUTORS / "internals.md").read_text())
    assert [folder for folder in named if not (ROOT / folder).is_dir()] == []


@pytest.mark.parametrize("name", ["internals.md", "style.md"])
def test_a_contributor_reads_no_sentence_of_over_25_words(name: str):
    assert [found for found in sentences((CONTRIBUTORS / name).read_text()) if len(found.split()) > 25] == []


def test_every_room_and_package_is_told_of():
    """A new room without its paragraph would be found by nobody."""
    text = (CONTRIBUTORS / "internals.md").read_text()
    rooms = [file.parent for top in ("bridge", "tasks", "lossless") for file in (ROOT / top).rglob("__init__.py")]
    names = {str(room.relative_to(ROOT)) for room in rooms}
    assert [name for name in sorted(names) if name + "/" not in text and f"`{name}`" not in text] == []


def test_the_site_lists_every_page():
    listed = re.findall(r'"([\w./-]+\.md)"', (ROOT / "zensical.toml").read_text())
    assert sorted(listed) == sorted(str(page.relative_to(ROOT)) for page in PAGES)
