"""`bridge audit TOPIC --json` of many topics, in one process: `python -m tests.chaos.audits TOPIC …` prints a list."""

import io
import json
import sys
from contextlib import redirect_stdout, suppress

import click
import typer

from bridge.cli import cli


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
