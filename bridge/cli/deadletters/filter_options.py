"""The options of the dead-letter filter for every command that takes one, with their shell completion."""

import inspect
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import update_wrapper
from typing import Annotated, Any, Final

import typer

from bridge.cli.command_io import FAULTS, fail
from bridge.deadletters.model.filter_syntax import FLAG, KEY, LEAST, NUMBERS, SINCE, UNTIL, WORDS, YES, ValueType
from bridge.deadletters.model.letter_filter import FILTER_FIELDS, FilterField, LetterFilter
from bridge.errors import FilterFault
from bridge.handler_routes import Routes, find_routes
from bridge.settings.app_discovery import find_celery_app, import_handlers

#: Seconds for importing the app: completion prints nothing and does not wait, so an app that cannot be imported in
#: time completes nothing.
IMPORT_SECONDS: Final = 1.5


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
IdsArgument = Annotated[list[int] | None, typer.Argument(help="Letters by their ids.", show_default=False)]
#: The types and defaults of options; those of all other fields are texts, and may be repeated.
_TYPES: Final[Mapping[ValueType, tuple[Any, Any]]] = {
    NUMBERS: (list[int] | None, None),
    WORDS: (str, ""),
    KEY: (str | None, None),
    SINCE: (str | None, None),
    UNTIL: (str | None, None),
    LEAST: (int | None, None),
    FLAG: (bool, False),
}


def _build_parameter(field: FilterField) -> inspect.Parameter:
    """Return the parameter of a command for a field of the filter."""
    type_, default = _TYPES.get(field.type, (list[str] | None, None))
    if field.name == "ids":
        return inspect.Parameter("ids", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=IdsArgument)
    name = field.option or field.word
    option = typer.Option(
        f"--{name}",
        help=field.help,
        rich_help_panel=_FILTER_PANEL,
        autocompletion=find_completion(field),
        min=1 if field.type is LEAST else None,
    )
    return inspect.Parameter(
        name.replace("-", "_"),
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[type_, option],
    )


def find_completion(field: FilterField) -> Callable[..., list[str]] | None:
    """Return the function that completes values of a field: its choices, or what the app has."""

    def complete_choices(incomplete: str) -> list[str]:
        return _match_prefix(incomplete, field.choices)

    if field.choices:
        return complete_choices
    return {"handlers": complete_handlers, "topics": complete_topics}.get(field.name)


_PARAMETERS: Final = {field: _build_parameter(field) for field in FILTER_FIELDS}


def _read_filter(given: Mapping[str, Any]) -> LetterFilter:
    """Return the filter of options; one that cannot be read ends the command with a message."""
    texts = {}
    for field, parameter in _PARAMETERS.items():
        value = given.get(parameter.name, parameter.default)
        if value != parameter.default:
            value = value if isinstance(value, list) else [YES if value is True else value]
            texts[field.word] = [str(each) for each in value]
    try:
        return LetterFilter.parse(texts, time.time())
    except FilterFault as error:
        fail(str(error), FAULTS)


def with_filter_options(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter `chosen` of a command by the filter options, and pass it the filter that they describe.

    Parameters:
        without: options that the command does not take.
    """
    options = [each for each in _PARAMETERS.values() if each.name not in without]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            chosen = _read_filter({option.name: given.pop(option.name) for option in options})
            command(chosen=chosen, **given)

        own = inspect.signature(command, eval_str=True).parameters
        parameters = [each for name, each in own.items() if name != "chosen"] + options
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        # Typer reads a command's signature, and the annotations of the function that it wraps.
        update_wrapper(run, command)
        del run.__wrapped__  # type: ignore[attr-defined]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorated
