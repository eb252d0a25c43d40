"""What a shell completes: names that are known without asking anybody, and those of handlers where that is quick.

Nothing is said while a line is completed, and nothing is waited for: an app that cannot be imported, or not in time,
completes nothing.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import typer

from bridge.deadletters.letters.letter import REASONS, Status
from bridge.handlers import Routes, find_routes
from bridge.settings.modules import find_celery_app, import_handlers

#: Seconds in which an app must have been imported: completion prints nothing and waits for nothing, so an app that
#: cannot be imported, or not in time, completes nothing.
WITHIN: Final = 1.5


def statuses(incomplete: str) -> list[str]:
    """Where a letter may stand."""
    return _beginning(incomplete, Status)


def reasons(incomplete: str) -> list[str]:
    """Why a delivery dies."""
    return _beginning(incomplete, REASONS)


def handlers(context: typer.Context, incomplete: str) -> list[str]:
    """The handlers of the app that `-A` names."""
    return _beginning(incomplete, _of_app(context, lambda routes: routes.handlers))


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """The topics of its handlers."""
    return _beginning(incomplete, _of_app(context, lambda routes: routes.topics))


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in map(str, names) if name.startswith(incomplete))


def _of_app(context: typer.Context, names: Callable[[Routes], Iterable[str]]) -> Iterable[str]:
    app = str(context.find_root().params.get("app") or "tasks")
    try:
        with _silent(), _within(WITHIN):
            found = find_celery_app(app)
            import_handlers(found)
            return names(find_routes(found)[0])
    except (Exception, SystemExit, KeyboardInterrupt):
        return ()


@contextmanager
def _silent() -> Iterator[None]:
    """Whatever modules print, also past Python: it would stand in the midst of the line that is being typed."""
    nowhere, kept = os.open(os.devnull, os.O_WRONLY), (os.dup(1), os.dup(2))
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        for name, number in enumerate(kept, 1):
            os.dup2(number, name)
        for number in (nowhere, *kept):
            os.close(number)


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    # What an app's own `except Exception` does not swallow.
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
