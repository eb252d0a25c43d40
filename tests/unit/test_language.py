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
    *("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "lossless/README.md", "docs/README.md"),
    *("docs/reference/glossary.md", "docs/reference/headers.md"),
    *("CHANGELOG.md", "docs/performance/sizing.md", "docs/concepts/comparison.md", "docs/concepts/ledger.md"),
    *("docs/tutorials/existing-celery-app.md", "docs/tutorials/quickstart.md"),
    *(
        f"docs/how-to/{page}.md"
        for page in ("console", "dead-letters", "erase-a-person", "fix-dead-letters", "redrive")
    ),
    *(f"docs/how-to/{page}.md" for page in ("dead-letter-store", "publish-messages", "reply-to-callers")),
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
        "docs/concepts/dead-letter-lifecycle.md",
        "docs/concepts/replays.md",
        "docs/concepts/lossless.md",
        "docs/concepts/order-and-batches.md",
        "docs/concepts/retries.md",
    ),
    *(f"docs/reference/{page}.md" for page in ("cli", "exit-codes", "http-api", "metrics", "settings", "status")),
    *("docs/reference/compatibility.md", "docs/reference/dead-letter-data.md", "docs/reference/python-api.md"),
    *(f"docs/contributors/{page}.md" for page in ("chaos", "internals", "model", "style")),
)
#: The rooms that write for people.
ROOMS: Final = ("cli", "console", "deadletters", "inspection", "jobs", "operator_actions")
TEMPLATES: Final = ROOT / "bridge" / "console" / "templates"
#: A coinage, and the term of the field: the rows of the table of words that a machine can tell from plain English.
BANNED: Final = {
    r"\b(?:is|are|was|were|stays?) (?:away|silent)\b": "unavailable, down, does not respond",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bcomes? again\b|\bgo(?:es)? round\b": "run again, redeliver",
    r"\b(?:lies|lay|stands|stood) in\b": "wait for, be queued in",
    r"\banother log\b|\blogs? (?:that |which )?went back\b": "recreated topic, truncated log",
    r"\bdoubts?\b": "suspected data loss",
    r"\btwins?\b": "duplicate",
    r"\bheld to be down\b": "circuit breaker open",
    r"\bunder way\b|\bon (?:its|their) way\b": "in flight, running",
    r"\bwhat waits\b": "backlog",
    r"\bshows? that it lives\b|\bgrips?\b": "heartbeat, lease, claim",
    r"(?<!batch )\bportions?\b": "share, quota",
    r"(?<![/-])\btrail\b": "audit log",
    r"(?<![/-])\bdesks?\b(?!/)": "dead-letter store, dead-letter CLI",
    r"\bslips?\b": "misspelt setting",
    r"\b(?:rides?|riding|rode|ridden)\b|\balong\b(?! with)": "acknowledge together with",
    r"\btroubles?\b": "error, failure",
    r"\bits way\b": "timeline",
}
#: A sentence that begins with a clause in the place of its subject.
HEADLESS: Final = re.compile(
    r"(?:^|(?<=[.:!?] )|(?<=\n\n)|(?<=[-|] ))"
    r"(?:What (?!to |if )|Whose |Of what |By what |Where that |As what |Who (?!must |should ))(?![^.\n]*\?)"
)


def faults(text: str) -> list[str]:
    """Return the banned words and the headless openings of a text, without its code."""
    prose = re.sub(r"```.*?```|`[^`]*`|(?<=\])\([^)]*\)", "", text, flags=re.DOTALL)
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


def read_template_text(template: str) -> str:
    """Return the words that a template shows: a paragraph for each block, and the sentences in its expressions."""
    shown = re.sub(r"\{#.*?#\}", "", template, flags=re.DOTALL)
    titles = re.findall(r'(?:aria-label|placeholder|title)="([^"]*)"', shown)
    shown = re.sub(r"\{[{%].*?[}%]\}", _list_sentences, shown, flags=re.DOTALL)
    blocks = re.sub(r"<(?:p|li|div|footer)\b[^>]*>", "\n\n", shown)
    # A heading, a label and a link are no sentences: a dot stands before them.
    text = re.sub(r"</[^>]*>", " ", re.sub(r"<\w[^>]*>", " · ", blocks))
    return "\n\n· ".join([re.sub(r"\s*\n\s*\n\s*", "\n\n", re.sub(r"[^\S\n]+", " ", text)), *titles])


def _list_sentences(expression: re.Match[str]) -> str:
    """Return the strings of an expression that have several words: others are names."""
    return " ".join(text for text in re.findall(r'"([^"]*)"', expression[0]) if " " in text)


@pytest.mark.parametrize(
    "template",
    [
        "<p>The cause is {{ words }} mended.</p>",
        "<footer>What waits is in the list.</footer>",
        "{{ icon('x') }}<div><b>It was sent.</b> What was written is still here.</div>",
        "<b>{{ 'x' if down else \"Kafka is away\" }}</b>",
        "<a title=\"Its way\" href='/'>Timeline</a>",
    ],
)
def test_a_coinage_and_a_headless_sentence_of_a_template_are_found(template: str):
    assert faults(read_template_text(template)) != []


@pytest.mark.parametrize(
    "template",
    ['{% if trouble %}<p id="trail">{{ trail.mended }}</p>{% endif %}', "<h2>What changes</h2>", "{# the desk #}"],
)
def test_a_name_a_heading_and_a_comment_of_a_template_are_none(template: str):
    assert faults(read_template_text(template)) == []


@pytest.mark.parametrize(
    "file",
    sorted(file for room in ROOMS for file in ROOT.glob(f"bridge/{room}/**/*.py")),
    ids=lambda file: f"{file.parent.name}/{file.name}",
)
def test_what_commands_print_has_the_words_of_the_field(file: Path):
    strings = [
        node.value
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    # One word is a name, and so is what a docstring explains.
    texts = [re.sub(r"^ +[\w, ]+: ", "", text, flags=re.MULTILINE) for text in strings if " " in text]
    assert [found for text in texts for found in faults(text)] == []


@pytest.mark.parametrize("template", sorted(path.name for path in TEMPLATES.glob("*.html")))
def test_a_page_of_the_console_has_the_words_of_the_field(template: str):
    assert faults(read_template_text((TEMPLATES / template).read_text())) == []


def test_the_description_of_the_api_has_the_words_of_the_field():
    texts = re.findall(r'"(?:description|summary)": "([^"]*)"', (ROOT / "docs/reference/openapi.json").read_text())
    assert [found for text in texts for found in faults(text)] == []
