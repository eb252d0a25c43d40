"""The reference pages say the defaults, headers and names that the code has."""

import ast
import re
from pathlib import Path
from typing import Any, Final

import pytest

from bridge.kafka import CONSUMER_DEFAULTS, FIXED, PRODUCER_DEFAULTS
from bridge.records.letter import NAMES as DEAD_LETTER_HEADERS
from bridge.records.parked import _NAMES as RETRY_HEADERS
from bridge.settings.values import EnvironmentSettings, FileSettings
from tasks.options import Options

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted([*ROOT.glob("*.md"), *DOCS.glob("**/*.md"), *ROOT.glob("benchmarks/*.md")])
#: Defaults that the page tells in words.
IN_WORDS: Final = {
    "KAFKA_HANDLERS_VERSION": "that of the distribution",
    "LEDGER_URL": "the broker, if it is one Redis",
}


def rows(page: str) -> dict[str, list[str]]:
    """Return the cells behind each name in backticks that begins a row of a table."""
    found: dict[str, list[str]] = {}
    for line in (DOCS / page).read_text().splitlines():
        if line.startswith("| `"):
            first, *rest = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for name in re.findall(r"`([^`]+)`", first):
                found.setdefault(name, rest)
    return found


def value(cell: str) -> Any:
    """Return the default that a cell says: `None`, a number or a string behind its backticks."""
    text = re.sub(r" \([^)]*\)$", "", cell).strip().strip("`")
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


SETTINGS: Final = rows("reference/settings.md")


@pytest.mark.parametrize("name", EnvironmentSettings.model_fields)
def test_the_page_says_the_default_of_each_variable(name: str):
    default = EnvironmentSettings.model_fields[name].default
    said = SETTINGS[name][0]
    if name in IN_WORDS:
        assert said.startswith(IN_WORDS[name])
    else:
        assert str(value(said)) == str(default)


@pytest.mark.parametrize("name", FileSettings.model_fields)
def test_the_page_says_the_default_of_each_setting(name: str):
    assert value(SETTINGS[name][0]) == FileSettings.model_fields[name].get_default(call_default_factory=True)


def test_the_page_names_no_setting_that_is_not_there():
    named = {name for name in SETTINGS if re.fullmatch(r"kafka_\w+", name)}
    assert named == {*FileSettings.model_fields}
    prefixes = ("DEADLETTERS_", "WORKER_", "BRIDGE_", "LEDGER_")
    logs = {"BRIDGE_LOG_LEVEL", "BRIDGE_LOG_FORMAT"}
    variables = {name for name in SETTINGS if name.startswith(prefixes)} - logs
    assert variables == {name for name in EnvironmentSettings.model_fields if name.startswith(prefixes)}


def test_the_page_on_handlers_has_each_option_of_ours_and_of_retries():
    names = [*Options.__annotations__]
    ours = names[: names.index("default_retry_delay")]
    page = rows("how-to/write-handlers.md")
    assert [name for name in ours if name not in page] == []


@pytest.mark.parametrize("headers", [DEAD_LETTER_HEADERS, RETRY_HEADERS], ids=["dead letter", "retry"])
def test_the_page_has_each_header(headers: frozenset[str]):
    page = rows("reference/headers.md")
    assert sorted(headers - {*page}) == []


def test_the_page_has_no_header_that_is_never_written():
    assert sorted({*rows("reference/headers.md")} - DEAD_LETTER_HEADERS - RETRY_HEADERS) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_table_has_a_head_and_rows_of_one_width(page: Path):
    """A blank line in a table, or a bar in a cell, makes the rest of it plain text."""
    wrong = []
    head: list[str] = []
    code = False
    for number, line in enumerate([*page.read_text().splitlines(), ""], 1):
        code ^= line.startswith("```")
        if line.startswith("|") and not code:
            head.append(line)
            cells = [len(re.findall(r"(?<!\\)\|", each)) for each in head]
            if (len(head) == 2 and not re.fullmatch(r"[|: -]+", line)) or cells[-1] != cells[0]:
                wrong.append(number)
        else:
            if len(head) == 1:
                wrong.append(number - 1)
            head = []
    assert wrong == []


def test_the_page_says_each_default_of_librdkafka_that_is_another_here():
    named = {name: cells[0] for name, cells in SETTINGS.items() if "." in name}
    for name, default in {**CONSUMER_DEFAULTS, **PRODUCER_DEFAULTS}.items():
        assert re.match(rf"`?{default}\b", named[name]), name
    page = (DOCS / "reference/settings.md").read_text()
    assert [name for name in FIXED if f"`{name}`" not in page] == []
