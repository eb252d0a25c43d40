"""The options of the dead-letter filter for every command that takes one, with their shell completion."""

import inspect
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Annotated, Any, Final

import typer

from bridge.cli.command_io import FAULTS, fail
from bridge.deadletters.model import filter_syntax
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import REASONS, LetterStatus
from bridge.errors import FilterFault
from bridge.handler_routes import Routes, find_routes
from bridge.settings.app_discovery import find_celery_app, import_handlers

#: Seconds for importing the app: completion prints nothing and does not wait, so an app that cannot be imported in
#: time completes nothing.
IMPORT_SECONDS: Final = 1.5


def complete_statuses(incomplete: str) -> list[str]:
    """Return the statuses that begin with a text."""
    return _match_prefix(incomplete, LetterStatus)


def complete_reasons(incomplete: str) -> list[str]:
    """Return the reasons of dead letters that begin with a text."""
    return _match_prefix(incomplete, REASONS)


def complete_handlers(context: typer.Context, incomplete: str) -> list[str]:
    """Return the handlers of the app that `-A` names that begin with a text."""
    return _match_prefix(incomplete, _list_app_names(context, lambda routes: routes.handlers))


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics of the app's handlers that begin with a text."""
    return _match_prefix(incomplete, _list_app_names(context, lambda routes: routes.topics))


def _match_prefix(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in map(str, names) if name.startswith(incomplete))


def _list_app_names(context: typer.Context, names: Callable[[Routes], Iterable[str]]) -> Iterable[str]:
    app = str(context.find_root().params.get("app") or "tasks")
    try:
        with _silence_output(), _limit_time(IMPORT_SECONDS):
            found = find_celery_app(app)
            import_handlers(found)
            return names(find_routes(found)[0])
    except (Exception, SystemExit, KeyboardInterrupt):
        return ()


@contextmanager
def _silence_output() -> Iterator[None]:
    """Discard what modules print, native code too: it would appear in the line that the user types."""
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
def _limit_time(seconds: float) -> Iterator[None]:
    # A BaseException: the app's own `except Exception` does not swallow it.
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


_FILTER_PANEL = "Which dead letters (all options must match; of a repeated one, any value)"
_TIME_HELP = "2026-11-20T08:00 (UTC), 2h, 3d, today, yesterday."

IdsArgument = Annotated[list[int] | None, typer.Argument(help="Letters by their ids.", show_default=False)]


def _option(name: str, help: str, **more: Any) -> Any:
    return typer.Option(f"--{name}", help=help, rich_help_panel=_FILTER_PANEL, **more)


def read_filter(
    ids: IdsArgument = None,
    handler: Annotated[
        list[str] | None, _option("handler", "The handler that failed.", autocompletion=complete_handlers)
    ] = None,
    topic: Annotated[list[str] | None, _option("topic", "Source topic.", autocompletion=complete_topics)] = None,
    exception: Annotated[list[str] | None, _option("exception", "Class: full name, or its last part.")] = None,
    reason: Annotated[list[str] | None, _option("reason", "Why it died.", autocompletion=complete_reasons)] = None,
    text: Annotated[str, _option("text", "Words of error, key, headers or value.")] = "",
    key: Annotated[str | None, _option("key", "Key: text, 0x… or base64:….")] = None,
    header: Annotated[
        list[str] | None, _option("header", "name=value, also name=0x… or name=base64:…; repeated: all.")
    ] = None,
    since: Annotated[str | None, _option("since", f"Failed at this time or later: {_TIME_HELP}")] = None,
    until: Annotated[str | None, _option("until", "Failed before this time.")] = None,
    status: Annotated[list[str] | None, _option("status", "Their status.", autocompletion=complete_statuses)] = None,
    version: Annotated[list[str] | None, _option("version", "Version of the code that failed.")] = None,
    group: Annotated[list[int] | None, _option("group", "Id of a group.")] = None,
    cause: Annotated[list[str] | None, _option("cause", "Id of a cause in a group (groups --group N).")] = None,
    origin: Annotated[list[str] | None, _option("origin", "Program that wrote it: bridge, spring, …")] = None,
    in_plan: Annotated[list[int] | None, _option("in-plan", "Id of a plan that it is or was in.")] = None,
    attempts: Annotated[int | None, _option("attempts", "Its handler ran at least so often.", min=1)] = None,
    died_again: Annotated[bool, _option("died-again", "A replay of it has failed.")] = False,
) -> LetterFilter:
    """Return the filter that the options describe; an option that cannot be read ends the command with a message."""
    now = time.time()
    try:
        return LetterFilter(
            ids=tuple(ids or ()),
            handlers=tuple(handler or ()),
            topics=tuple(topic or ()),
            exceptions=tuple(exception or ()),
            reasons=tuple(reason or ()),
            versions=tuple(version or ()),
            origins=tuple(origin or ()),
            statuses=filter_syntax.parse_statuses(status or ()),
            groups=tuple(group or ()),
            causes=tuple(cause or ()),
            text=text,
            key=None if key is None else filter_syntax.parse_key(key),
            headers=tuple(map(filter_syntax.parse_header, header or ())),
            since=None if since is None else filter_syntax.parse_moment(since, now),
            until=None if until is None else filter_syntax.parse_moment(until, now),
            plans=tuple(in_plan or ()),
            died_again=died_again,
            attempts=attempts,
        )
    except FilterFault as error:
        fail(str(error), FAULTS)


def with_filter_options(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter `chosen` of a command by the filter options, and pass it the filter that they describe.

    Parameters:
        without: options that the command does not take.
    """
    options = [
        each for each in inspect.signature(read_filter, eval_str=True).parameters.values() if each.name not in without
    ]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            chosen = read_filter(**{each.name: given.pop(each.name) for each in options})
            command(chosen=chosen, **given)

        own = inspect.signature(command, eval_str=True).parameters
        parameters = [each for name, each in own.items() if name != "chosen"] + options
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
        # Typer reads a command's signature, and the annotations of the function that it wraps.
        update_wrapper(run, command)
        del run.__wrapped__  # type: ignore[attr-defined]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorated
