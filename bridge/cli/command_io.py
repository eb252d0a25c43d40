"""The input and output of a command: it loads app and settings, prints results and errors, and exits with a code."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NoReturn

import typer
from celery import Celery
from rich.progress import Progress, TextColumn

from bridge.errors import AppNotFound, BridgeError, KafkaUnavailable, SettingsError
from bridge.formats.text_forms import make_printable
from bridge.handler_routes import Routes
from bridge.inspection.setup_check import load_setup
from bridge.inspection.terminal_output import LINE_BREAK, create_console
from bridge.settings import Settings
from bridge.settings.app_discovery import find_celery_app

#: Exit codes; `bridge.cli.exit_codes` has the meaning of each for each command. 64 and 75 are EX_USAGE and EX_TEMPFAIL
#: of sysexits.h; a shell gives 130 after Ctrl-C.
OK, FAULTS, NOT_FOUND, BAD, USAGE, AGAIN, INTERRUPTED = 0, 1, 2, 3, 64, 75, 130

console: Final = create_console()


def load_app(name: str, *, desk: bool = False, wrong: int | None = None) -> tuple[Celery, Settings, Routes]:
    """Return the app, its settings and its handlers; print the faults of the configuration and exit, if there are any.

    Parameters:
        desk: whether the command opens the dead-letter store: a misspelt variable of the store is then a fault.
        wrong: the exit code for a wrong app or wrong settings; `None`: `NOT_FOUND` or `FAULTS`.
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
        print(f"Invalid configuration:\n{SettingsError(faults)}", file=sys.stderr)
        raise typer.Exit(wrong or (FAULTS if imported else NOT_FOUND))
    return app, replace(chosen, app=name), routes


def print_result(result: Any, as_json: bool, show: Callable[[], None]) -> None:
    """Print the result of a command: as JSON for programs, or by `show` for people."""
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        show()


def end_decision(*decisions: Mapping[str, Any]) -> None:
    """Exit with `AGAIN` if Redis alone has a decision: a script must not take it for safe."""
    if any(decision.get("unpublished") for decision in decisions):
        raise typer.Exit(AGAIN)


def fail(words: str, code: int) -> NoReturn:
    """Print why a command has failed, and exit with a code."""
    print(make_printable(words, keep=LINE_BREAK), file=sys.stderr)
    raise typer.Exit(code)


def fail_unavailable(error: BridgeError) -> NoReturn:
    """Print which server is unavailable, with the command that finds the cause, and exit with NOT_FOUND."""
    advice = " `bridge check` shows the address and what to correct." if isinstance(error, KafkaUnavailable) else ""
    fail(f"{error}{advice}", NOT_FOUND)


def has_terminal() -> bool:
    """Return whether a terminal shows a question and takes the answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def require_terminal(yes: bool) -> None:
    """Refuse to begin an action that asks for a confirmation if no terminal can show the question."""
    if not yes and not has_terminal():
        fail("there is no terminal to confirm on: check what it would do first, then pass --yes.", NOT_FOUND)


def read_secret(what: str, option: str, *, from_stdin: bool, confirm: bool = False) -> str:
    """Return a secret from the first line of standard input, or from a prompt; it is never an argument.

    Parameters:
        what: its name for people.
        option: the option that has it read from standard input.
    """
    if from_stdin:
        read = sys.stdin.readline().rstrip("\r\n")
        return read or fail(f"standard input has no {what.lower()} in its first line: nothing was changed.", FAULTS)
    if not has_terminal():
        fail(f"there is no terminal to ask for the {what.lower()}: pass it with {option}.", NOT_FOUND)
    return str(typer.prompt(what, hide_input=True, confirmation_prompt=confirm, err=True))


error_console: Final = create_console(stderr=True)


@contextmanager
def show_progress(doing: str) -> Iterator[Callable[[str], None]]:
    """Show the progress of a command on a terminal, by the function that is yielded."""
    columns = (TextColumn("{task.description}", markup=False),)
    with Progress(*columns, console=error_console, disable=not error_console.is_terminal, transient=True) as progress:
        task = progress.add_task("")
        yield lambda text: progress.update(task, description=f"{doing}: {text}")
