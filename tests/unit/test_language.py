"""Docs, CLI help, problems and templates use the field's words, and their sentences have a subject."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main

from bridge.cli.root_command import cli
from bridge.problems.problem_row import ProblemWords
from bridge.problems.problem_table import PROBLEM_TABLE

ROOT: Final = Path(__file__).parents[2]
#: Pages and texts that have the field's words. A page that is rewritten is added here, and none is taken out.
PAGES: Final = (
    *("README.md", "docs/README.md", "docs/reference/glossary.md", "docs/reference/headers.md"),
    *("CHANGELOG.md", "docs/performance/sizing.md", "docs/concepts/comparison.md", "docs/concepts/ledger.md"),
    *("docs/tutorials/existing-celery-app.md", "docs/tutorials/quickstart.md"),
    *(f"docs/how-to/{page}.md" for page in ("console", "dead-letters", "publish-messages")),
    *(f"docs/how-to/{page}.md" for page in ("migrate-from-a-consumer", "upgrade", "webhooks", "write-handlers")),
    *(
        f"docs/how-to/{page}.md"
        for page in ("deploy", "idempotency", "intervene", "monitor", "production-checklist", "scale", "secure")
    ),
    *(f"docs/runbooks/{page}.md" for page in ("failure-modes", "faq", "problems")),
    *(
        "docs/concepts/architecture.md",
        "docs/concepts/guarantees.md",
        "docs/concepts/circuit-breakers.md",
        "docs/concepts/lossless.md",
        "docs/concepts/order-and-batches.md",
        "docs/concepts/retries.md",
    ),
    *(f"docs/reference/{page}.md" for page in ("cli", "exit-codes", "http-api", "metrics", "settings", "status")),
    *("docs/reference/compatibility.md", "docs/reference/python-api.md"),
    *(f"docs/contributors/{page}.md" for page in ("chaos", "internals", "model", "style")),
)
TEMPLATES: Final = ROOT / "bridge" / "console" / "templates"
MENDED: Final = r"\bmend(?:s|ed|ing)?\b"
TRAIL: Final = r"\b(?:the|whole) trail\b"
#: A coinage, and the term of the field.
BANNED: Final = {
    MENDED: "fix",
    r"\bslips? of the pen\b": "misspelt setting",
    r"\bheld to be down\b": "circuit breaker open",
    r"\bcomes? again\b": "run again, redeliver",
    TRAIL: "audit log",
    r"\bits way\b": "timeline",
    r"\btwins?\b": "duplicate",
    r"\bshows? that it lives\b": "heartbeat",
}
#: A sentence that begins with a clause in the place of its subject.
HEADLESS: Final = re.compile(
    r"(?:^|(?<=[.:!?] )|(?<=\n\n)|(?<=[-|] ))"
    r"(?:What (?!to |if )|Whose |Of what |By what |Where that |As what |Who (?!must |should ))(?![^.\n]*\?)"
)


def faults(text: str) -> list[str]:
    """Return the banned words and the headless openings of a text, without its code."""
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    words = [
        f"{found[0]}: write {term}" for banned, term in BANNED.items() for found in re.finditer(banned, prose, re.I)
    ]
    return words + [prose[found.start() : found.start() + 60] for found in HEADLESS.finditer(prose)]


def helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield the help of each command, argument and option."""
    yield name, command.help or ""
    for parameter in command.params:
        yield f"{name} {parameter.name}", getattr(parameter, "help", None) or ""
    for each, below in getattr(command, "commands", {}).items():
        yield from helps(below, f"{name} {each}")


@pytest.mark.parametrize(
    "text",
    [
        "Mend the cause.",
        "What is done is not run again.",
        "It is held to be down.",
        "It ends. Whose it is, is not known.",
    ],
)
def test_a_coinage_and_a_headless_sentence_are_found(text: str):
    assert faults(text) != []


@pytest.mark.parametrize("text", ["Fix the cause.", "What to do: fix `mend`.", "The bridge commits what it read."])
def test_a_plain_sentence_is_none(text: str):
    assert faults(text) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_words_of_the_field(page: str):
    assert faults((ROOT / page).read_text()) == []


def test_the_problems_have_the_words_of_the_field():
    assert [
        (row.identifier, found)
        for row in PROBLEM_TABLE
        for words in ([row.words] if isinstance(row.words, ProblemWords) else row.words.values())
        for text in (row.means, row.advice, words.sentence, words.what, words.do)
        for found in faults(text)
    ] == []


def test_the_help_has_the_words_of_the_field():
    assert [
        (name, found) for name, text in helps(typer.main.get_command(cli), "bridge") for found in faults(text)
    ] == []


@pytest.mark.parametrize(
    "file",
    sorted(file for room in ("cli", "inspection", "operator_actions") for file in ROOT.glob(f"bridge/{room}/*.py")),
    ids=lambda file: f"{file.parent.name}/{file.name}",
)
def test_what_commands_print_has_the_words_of_the_field(file: Path):
    texts = [
        node.value
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert [found for text in texts for found in faults(text)] == []


@pytest.mark.parametrize("template", sorted(path.name for path in TEMPLATES.glob("*.html")))
def test_a_page_of_the_console_says_fix_and_audit_log(template: str):
    # Comments, and names of attributes, are no words of a page.
    said = re.sub(r"\{#.*?#\}|\.\w+", "", (TEMPLATES / template).read_text(), flags=re.DOTALL)
    assert [found for banned in (MENDED, TRAIL) for found in re.findall(banned, said, re.IGNORECASE)] == []


def test_the_description_of_the_api_says_fix_and_audit_log():
    found = re.findall(r'"description": "([^"]*)"', (ROOT / "docs/reference/openapi.json").read_text())
    assert [each for each in found if re.search(f"{MENDED}|{TRAIL}", each, re.IGNORECASE)] == []
