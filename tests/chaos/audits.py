"""`bridge audit TOPIC --json` of many topics, in one process: `python -m tests.chaos.audits TOPIC …` prints a list."""

import io
import json
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout, suppress
from typing import Any

import click
import typer

from bridge.cli import cli
from tests.processes import Process, Stack


def audits_of(world: Stack, names: Iterable[str]) -> dict[str, Any]:
    """`bridge audit` of these topics."""
    names = list(names)
    process: Process = world.start(
        "audits", sys.executable, "-m", "tests.chaos.audits", *(world.topic(name) for name in names)
    )
    assert process.ends(120) == 0, process.text
    return dict(zip(names, json.loads(process.text.splitlines()[-1]), strict=True))


def main(topics: list[str]) -> None:
    command, found = typer.main.get_command(cli), []
    for topic in topics:
        with redirect_stdout(io.StringIO()) as printed, suppress(click.exceptions.Exit, SystemExit):
            command(["audit", topic, "--json"], standalone_mode=False)
        text = printed.getvalue()
        found.append(json.loads(text[text.index("{") :]))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
