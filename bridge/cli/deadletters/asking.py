"""The options by which people say which dead letters are meant: the same for every command that takes a filter."""

import inspect
import time
from collections.abc import Callable
from functools import update_wrapper
from typing import Annotated, Any

import typer

from bridge.cli.answers import FAULTS, fail
from bridge.cli.deadletters.completing import handlers as handler_names
from bridge.cli.deadletters.completing import reasons as reason_names
from bridge.cli.deadletters.completing import statuses as status_names
from bridge.cli.deadletters.completing import topics as topic_names
from bridge.deadletters.letters import written
from bridge.deadletters.letters.filters import Filter
from bridge.errors import FilterFault

_PANEL = "Which dead letters (all of it must fit; of what is repeated, one)"
_TIME = "2026-11-20T08:00 (UTC), 2h, 3d, today, yesterday."

IdsArgument = Annotated[list[int] | None, typer.Argument(help="Letters by their ids.", show_default=False)]


def _option(name: str, help: str, **more: Any) -> Any:
    return typer.Option(f"--{name}", help=help, rich_help_panel=_PANEL, **more)


def asked(
    ids: IdsArgument = None,
    handler: Annotated[
        list[str] | None, _option("handler", "The handler that failed.", autocompletion=handler_names)
    ] = None,
    topic: Annotated[list[str] | None, _option("topic", "Source topic.", autocompletion=topic_names)] = None,
    exception: Annotated[list[str] | None, _option("exception", "Class, whole or its last part.")] = None,
    reason: Annotated[list[str] | None, _option("reason", "Why it died.", autocompletion=reason_names)] = None,
    text: Annotated[str, _option("text", "Words of error, key, headers or value.")] = "",
    key: Annotated[str | None, _option("key", "Key: text, 0x… or base64:….")] = None,
    header: Annotated[
        list[str] | None, _option("header", "name=value, also name=0x… or name=base64:…; repeated: all.")
    ] = None,
    since: Annotated[str | None, _option("since", f"Failed then or later: {_TIME}")] = None,
    until: Annotated[str | None, _option("until", "Failed before then.")] = None,
    status: Annotated[list[str] | None, _option("status", "Their status.", autocompletion=status_names)] = None,
    version: Annotated[list[str] | None, _option("version", "Of the code that failed.")] = None,
    group: Annotated[list[int] | None, _option("group", "Id of a group.")] = None,
    cause: Annotated[list[str] | None, _option("cause", "Id of a cause in a group (groups --group N).")] = None,
    origin: Annotated[list[str] | None, _option("origin", "bridge, or who else wrote it: spring, connect, …")] = None,
    in_plan: Annotated[list[int] | None, _option("in-plan", "Id of a plan that it is or was in.")] = None,
    attempts: Annotated[int | None, _option("attempts", "Its handler ran so often, or more.", min=1)] = None,
    died_again: Annotated[bool, _option("died-again", "A replay of it has failed.")] = False,
) -> Filter:
    """What these options mean; what cannot be read is said, and ends the command."""
    now = time.time()
    try:
        return Filter(
            ids=tuple(ids or ()),
            handlers=tuple(handler or ()),
            topics=tuple(topic or ()),
            exceptions=tuple(exception or ()),
            reasons=tuple(reason or ()),
            versions=tuple(version or ()),
            origins=tuple(origin or ()),
            statuses=written.statuses(status or ()),
            groups=tuple(group or ()),
            causes=tuple(cause or ()),
            text=text,
            key=None if key is None else written.key(key),
            headers=tuple(map(written.header, header or ())),
            since=None if since is None else written.moment(since, now),
            until=None if until is None else written.moment(until, now),
            plans=tuple(in_plan or ()),
            died_again=died_again,
            attempts=attempts,
        )
    except FilterFault as error:
        fail(str(error), FAULTS)


def filtered(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `asked` in the place of its parameter `chosen`, which gets what they mean.

    Parameters:
        without: those that it has not.
    """
    options = [each for each in inspect.signature(asked, eval_str=True).parameters.values() if each.name not in without]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            chosen = asked(**{each.name: given.pop(each.name) for each in options})
            command(chosen=chosen, **given)

        own = inspect.signature(command, eval_str=True).parameters
        parameters = [each for name, each in own.items() if name != "chosen"] + options
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
        # What Typer reads: a command's signature, and the annotations of what it wraps.
        update_wrapper(run, command)
        del run.__wrapped__  # type: ignore[attr-defined]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorated
