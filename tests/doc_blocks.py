"""The code blocks and the command lines of the documentation, as tests read them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import click
import typer.main

from bridge.cli.root_command import cli

ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True)
class Step:
    """A command line of a page, and the output that the page shows of it."""

    command: str
    output: str


@dataclass(frozen=True)
class Block:
    """One fenced block of a page.

    Attributes:
        page: the file's name, without its ending.
    """

    page: str
    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that a Python block says it is, in its first line; empty if it names none."""
        named = re.match(r"# ([\w/]+\.py)\b", self.text)
        return named[1] if named else ""

    def commands(self) -> Iterator[str]:
        """Yield each command line: of a block with output, those behind a `$`."""
        yield from (step.command for step in self.steps())

    def steps(self) -> Iterator["Step"]:
        """Yield each command line with the output that the page shows behind it."""
        text = re.sub(r"\\\n\s*", "", self.text)
        if self.language == "console":
            for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, output = step.partition("\n")
                yield Step(command, output)
        else:
            yield from (Step(line, "") for line in text.splitlines() if line)

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0][:50]}"


def read_blocks(page: Path) -> list[Block]:
    """Return every fenced block of a page, in its order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [Block(page.stem, language, text) for language, text in found]


def find_block(blocks: list[Block], words: str) -> Block:
    """Return the one block that has these words."""
    (found,) = [block for block in blocks if words in block.text]
    return found


@cache
def make_root_command() -> Any:
    """Return the command `bridge` with its subcommands, which takes hundredths of a second to make."""
    return typer.main.get_command(cli)


def parse_bridge(words: list[str]) -> None:
    """Raise `click.UsageError` if a command line of `bridge` has no such command, argument or option."""
    command: Any = make_root_command()
    context: Any = click.Context(command, info_name="bridge")
    while True:
        context = command.make_context(context.info_name, words, parent=context if context.command != command else None)
        if not hasattr(command, "commands"):
            return
        if not (words := [*context._protected_args, *context.args]):
            return
        name, command, words = command.resolve_command(context, words)
        context = click.Context(command, info_name=name, parent=context)


def find_unknown_words(words: list[str]) -> list[str]:
    """Return the commands and options that do not exist, of a command line whose arguments may be left out.

    A word in capitals stands for what the reader puts there.
    """
    command: Any = make_root_command()
    unknown = []
    rest = iter(words)
    for word in rest:
        if word.startswith("-"):
            # A group that has a default takes the options of that, too.
            commands = [command, *filter(None, [getattr(command, "commands", {}).get(getattr(command, "default", ""))])]
            options = {
                name: each for one in commands for each in one.params for name in (*each.opts, *each.secondary_opts)
            }
            option, _, value = word.partition("=")
            if option not in {*options, "--help", "--install-completion"}:
                unknown.append(word)
            elif option in options and not value and not options[option].is_flag:
                next(rest, None)
        elif word in getattr(command, "commands", {}):
            command = command.commands[word]
        elif hasattr(command, "commands") and not hasattr(command, "default") and not word.isupper():
            unknown.append(word)
    return unknown
