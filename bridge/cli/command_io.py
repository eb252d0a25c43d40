"""The frame of a command: loads app and settings, prints results and errors, ends with an exit code."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NoReturn

import typer
from celery import Celery
from rich.console import Console
from rich.progress import Progress, TextColumn

from bridge.errors import AppNotFound, SettingsError
from bridge.formats.text_forms import make_printable
from bridge.handler_routes import Routes
from bridge.inspection.setup_check import load_setup
from bridge.inspection.terminal_output import LINE_BREAK
from bridge.settings import Settings
from bridge.settings.app_discovery import find_celery_app

#: Exit codes, for scripts; what each means for a command is in `bridge.cli.exit_codes`. 64 and 75 are those of
#: sysexits.h for a wrong use (EX_USAGE) and for what is worth another start (EX_TEMPFAIL), 130 is Ctrl-C's in shells.
OK, FAULTS, NOT_FOUND, BAD, USAGE, AGAIN, INTERRUPTED = 0, 1, 2, 3, 64, 75, 130

console = Console(highlight=False)


def load_app(name: str, *, desk: bool = False, wrong: int | None = None) -> tuple[Celery, Settings, Routes]:
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
    chosen, routes, faults, imported = load_setup(app, os.environ)
    if desk:
        faults = [*faults, *chosen.unread_by_desk]
    if faults:
        print(f"Nothing was begun: this is wrong:\n{SettingsError(faults)}", file=sys.stderr)
        raise typer.Exit(wrong or (FAULTS if imported else NOT_FOUND))
    return app, replace(chosen, app=name), routes


def print_result(found: Any, as_json: bool, show: Callable[[], None]) -> None:
    """What a command has found: as JSON for programs, else for people."""
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        show()


def end_decision(*made: Mapping[str, Any]) -> None:
    """End a command that decides: a script must not hold for safe what Redis alone has."""
    if any(each.get("unpublished") for each in made):
        raise typer.Exit(AGAIN)


def fail(words: str, code: int) -> NoReturn:
    """Say why a command has failed, and end it."""
    print(make_printable(words, keep=LINE_BREAK), file=sys.stderr)
    raise typer.Exit(code)


error_console: Final = Console(stderr=True, highlight=False)


@contextmanager
def show_progress(doing: str) -> Iterator[Callable[[str], None]]:
    """How far it is, on a terminal."""
    columns = (TextColumn("{task.description}"),)
    with Progress(*columns, console=error_console, disable=not error_console.is_terminal, transient=True) as progress:
        task = progress.add_task("")
        yield lambda said: progress.update(task, description=f"{doing}: {said}")
