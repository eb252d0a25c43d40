"""The options by which people say which dead letters are meant."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from bridge.cli.command_io import FAULTS
from bridge.cli.deadletters.filter_options import with_filter_options
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus


def asked(*words: str) -> tuple[LetterFilter, bool]:
    """What a command is given that takes a filter, and an option of its own."""
    found = []

    @with_filter_options()
    def command(context: typer.Context, chosen: LetterFilter, quick: bool = False) -> None:
        found.append((chosen, quick))

    app = typer.Typer()
    app.command()(command)
    ended = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return found[0]


def test_no_command_has_two_options_of_one_name():
    app = import_module("bridge.cli.root_command").cli
    twice = {
        f"{path} {name}"
        for path, command in commands(typer.main.get_command(app), "bridge")
        for name, count in Counter(name for option in command.params for name in option.opts).items()
        if count > 1
    }
    assert twice == set()


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A command, and those below it, with what calls them."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{path} {name}")


def test_without_an_option_every_letter_is_meant():
    assert asked() == (ALL_LETTERS, False)


def test_every_option_says_a_part_of_the_filter_and_the_commands_own_stay_its_own():
    found, quick = asked(
        *("17", "18", "--quick", "--handler", "a", "--handler", "b", "--topic", "orders", "--exception", "KeyError"),
        *("--reason", "poison", "--text", "no bank", "--key", "0x00ff", "--header", "tenant=a=b"),
        *("--group", "7", "--cause", "1f0c"),
        *("--since", "2026-11-20T08:00", "--until", "2026-11-21", "--status", "open", "--version", "1.4"),
        *("--origin", "spring", "--consumer-group", "payments", "--in-plan", "118", "--in-plan", "119"),
        *("--attempts", "4", "--died-again"),
    )
    assert quick
    assert found == LetterFilter(
        ids=(17, 18),
        handlers=("a", "b"),
        topics=("orders",),
        exceptions=("KeyError",),
        reasons=("poison",),
        versions=("1.4",),
        origins=("spring",),
        consumer_groups=("payments",),
        plans=(118, 119),
        attempts=4,
        died_again=True,
        statuses=(LetterStatus.OPEN,),
        groups=(7,),
        causes=("1f0c",),
        text="no bank",
        key=b"\x00\xff",
        headers=(("tenant", "a=b"),),
        since=int(datetime(2026, 11, 20, 8, tzinfo=UTC).timestamp() * 1000),
        until=int(datetime(2026, 11, 21, tzinfo=UTC).timestamp() * 1000),
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--status", "closed"), "There is no status 'closed'"),
        (("--since", "soon"), "is no time: write"),
        (("--key", "0xzz"), "text:"),
        (("--header", "tenant"), "name=value"),
        (("--header", "trace=0xzz"), "text:"),
        (("--since", "today", "--until", "yesterday"), "earlier than `until`"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_line_and_asks_nothing(words, said):
    def command(context: typer.Context, chosen: LetterFilter) -> None:
        raise AssertionError("it was asked")

    app = typer.Typer()
    app.command()(with_filter_options()(command))
    ended = CliRunner().invoke(app, list(words))
    assert ended.exit_code == FAULTS
    assert said in ended.output
    assert len(ended.output.splitlines()) == 1
