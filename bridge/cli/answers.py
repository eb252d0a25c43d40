"""What commands begin and end with: the app and its settings, what they print, and their exit codes."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import typer
from celery import Celery
from rich.console import Console

from bridge.commands.check import setting_up
from bridge.commands.printing import BREAK
from bridge.errors import AppNotFound, SettingsError
from bridge.handlers import Routes
from bridge.records.printable import printable
from bridge.settings import Settings
from bridge.settings.modules import find_celery_app

#: Exit codes, for scripts; what each means for a command is in `bridge.cli.exit_codes`. 64 and 75 are those of
#: sysexits.h for a wrong use (EX_USAGE) and for what is worth another start (EX_TEMPFAIL), 130 is Ctrl-C's in shells.
OK, FAULTS, NOT_FOUND, BAD, USAGE, AGAIN, INTERRUPTED = 0, 1, 2, 3, 64, 75, 130

console = Console(highlight=False)


def loaded(name: str, *, desk: bool = False, wrong: int | None = None) -> tuple[Celery, Settings, Routes]:
    """The app, its settings and its handlers; what is wrong is printed, and ends the command.

    Parameters:
        desk: whether the desk is opened: a variable of it that is misspelt is a fault then.
        wrong: the exit code for an app or settings that are wrong, where a command has one for that alone.
    """
    try:
        app = find_celery_app(name)
    except AppNotFound as error:
        print(error, file=sys.stderr)
        raise typer.Exit(wrong or NOT_FOUND) from None
    chosen, routes, faults, imported = setting_up(app, os.environ)
    if desk:
        faults = [*faults, *chosen.unread_by_desk]
    if faults:
        print(f"Nothing was begun: this is wrong:\n{SettingsError(faults)}", file=sys.stderr)
        raise typer.Exit(wrong or (FAULTS if imported else NOT_FOUND))
    return app, replace(chosen, app=name), routes


def print_found(found: Any, as_json: bool, show: Callable[[], None]) -> None:
    """What a command has found: as JSON for programs, else for people."""
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        show()


def end_decided(*made: Mapping[str, Any]) -> None:
    """End a command that decides: a script must not hold for safe what Redis alone has."""
    if any(each.get("unpublished") for each in made):
        raise typer.Exit(AGAIN)


def fail(words: str, code: int) -> NoReturn:
    """Say why a command has failed, and end it."""
    print(printable(words, keep=BREAK), file=sys.stderr)
    raise typer.Exit(code)
