"""A script can tell by the exit code what a command found from what it could not ask."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
import typer.main
from typer.testing import CliRunner

from bridge.cli import inspection_commands
from bridge.cli.command_io import FAULTS, NOT_FOUND, OK, USAGE, fail_unavailable
from bridge.cli.exit_codes import EXIT_CODES
from bridge.cli.root_command import cli
from bridge.errors import KafkaUnavailable, LedgerUnavailable, UnknownTopic
from bridge.inspection.record_search import SearchResult

DOCS: Final = Path(__file__).parents[2] / "docs"


class Answer:
    """What an audit has found, as far as its end goes by it."""

    def __init__(self, clean: bool, has_losses: bool = False) -> None:
        self.clean, self.has_losses = clean, has_losses

    def to_data(self) -> dict[str, bool]:
        return {"clean": self.clean}


class Loaded:
    """Settings, as far as these commands look at them."""

    ledger_url: str | None = "redis://nowhere"


def ended(monkeypatch: pytest.MonkeyPatch, name: str, answer: Any, *words: str, ledger: bool = True) -> int:
    """The exit code of a command whose question is answered so, or fails so."""
    settings = Loaded()
    settings.ledger_url = Loaded.ledger_url if ledger else None

    def answers(*_: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(inspection_commands, "load_app", lambda *_, **__: (None, settings, None))
    monkeypatch.setattr(inspection_commands, {"audit": "audit_topic", "find": "find_record"}[name], answers)
    return CliRunner().invoke(cli, [name, *words]).exit_code


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(clean=True), OK),
        (Answer(clean=False, has_losses=True), FAULTS),
        (Answer(clean=False), NOT_FOUND),
        (KafkaUnavailable("Kafka does not answer."), NOT_FOUND),
        (LedgerUnavailable("Redis does not answer."), NOT_FOUND),
        (UnknownTopic("no handler names topic 'order'."), USAGE),
    ],
)
def test_an_audit_tells_what_is_lost_from_what_is_not_known_and_from_a_wrong_use(
    monkeypatch: pytest.MonkeyPatch, answer: Any, code: int
):
    assert ended(monkeypatch, "audit", answer, "orders", "--json") == code


def test_a_command_that_gets_no_answer_from_kafka_names_the_check(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(typer.Exit):
        fail_unavailable(KafkaUnavailable("Kafka does not answer: timed out."))
    assert "Kafka does not answer: timed out. `bridge check` shows" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["audit", "find"])
def test_without_a_ledger_it_is_not_known(monkeypatch: pytest.MonkeyPatch, name: str):
    assert ended(monkeypatch, name, None, "orders-0-1", ledger=False) == NOT_FOUND


def test_a_record_that_is_not_there_is_told_from_a_wrong_use(monkeypatch: pytest.MonkeyPatch):
    nothing = SearchResult([], {}, {})
    unread = SearchResult([], {}, {}, {("orders", 0): "the partition has no leader"})
    assert ended(monkeypatch, "find", unread, "orders-0-1") == NOT_FOUND
    assert ended(monkeypatch, "find", nothing, "orders-0-1") == FAULTS
    assert ended(monkeypatch, "find", nothing, "orders") == USAGE
    assert ended(monkeypatch, "find", LedgerUnavailable("Redis does not answer."), "orders-0-1") == NOT_FOUND


@pytest.mark.parametrize("words", [("audit",), ("audit", "--never"), ("find", "a", "b"), ("topics", "--never")])
def test_a_wrong_option_has_a_code_of_its_own(words: tuple[str, ...]):
    assert CliRunner().invoke(cli, [*words]).exit_code == USAGE


@pytest.mark.parametrize("name", ["audit", "find", "topics"])
def test_an_app_that_cannot_be_loaded_is_a_wrong_use(name: str):
    words = ["-A", "nowhere.at_all", name, *(["orders-0-1"] if name != "topics" else [])]
    assert CliRunner().invoke(cli, words).exit_code == USAGE


def _commands(command: Any, name: str = "") -> Iterator[str]:
    below = getattr(command, "commands", {})
    if not below:
        yield name
    for each, inner in below.items():
        yield from _commands(inner, f"{name} {each}".strip())


def test_every_command_has_its_exit_codes_in_the_table():
    names = {*_commands(typer.main.get_command(cli))}
    assert {*EXIT_CODES} <= names | {"deadletters"}
    # Those of the dead letters that have no row have the codes of `deadletters`.
    assert {name for name in names - {*EXIT_CODES} if not name.startswith("deadletters ")} == set()


@pytest.mark.parametrize("name", EXIT_CODES)
def test_the_help_of_a_command_says_its_exit_codes(name: str):
    said = CliRunner().invoke(cli, [*name.split(), "--help"], env={"COLUMNS": "300"}).output
    for code, meaning in EXIT_CODES[name].items():
        assert f"{code}: {meaning}." in said
    assert said.index("Exit codes:") < said.index("Example:")


def test_the_documentation_says_the_exit_codes_of_the_table():
    rows = re.findall(
        r"^\| `([\w ]+)` \| (\d+) \| (.+) \|$", (DOCS / "reference" / "exit-codes.md").read_text(), re.MULTILINE
    )
    assert rows == [(name, str(code), said) for name, codes in EXIT_CODES.items() for code, said in codes.items()]
