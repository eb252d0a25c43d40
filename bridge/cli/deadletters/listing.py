"""`bridge deadletters list`, `groups` and `stats`."""

import json
import sys
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from bridge.cli.answers import console, print_found
from bridge.cli.deadletters import tables
from bridge.cli.deadletters.asking import filtered
from bridge.cli.deadletters.opening import opened
from bridge.commands.printing import say
from bridge.deadletters.filters import Filter

if TYPE_CHECKING:
    from bridge.deadletters.desk import Desk

#: Letters that are shown to people, unless they want more.
SHOWN: Final = 50

LimitOption = Annotated[
    int | None,
    typer.Option(min=0, help="Most letters; 0: all.", show_default=f"{SHOWN}, and all as JSON"),
]


@filtered
def list_letters(
    context: typer.Context,
    chosen: Filter,
    limit: LimitOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list, an object a letter.")] = False,
) -> None:
    """List dead letters, newest first.

    Example: bridge deadletters list --handler orders.handlers.charge --since 2h --status open
    """
    with opened(context) as desk:
        if as_json:
            print_list(each.to_data() for each in islice(desk.letters.each(chosen), limit or None))
        else:
            _print(desk, chosen, SHOWN if limit is None else limit)


def _print(desk: "Desk", chosen: Filter, limit: int) -> None:
    found = list(islice(desk.letters.each(chosen), limit or None))
    tables.letters(console, found)
    if not found:
        say(console, "no dead letter fits")
    elif len(found) == limit:
        say(
            console,
            f"{len(found):,} of {desk.letters.count(chosen)}; all: --limit 0; in groups: bridge deadletters groups",
        )


@filtered
def groups(
    context: typer.Context,
    chosen: Filter,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list, an object a group.")] = False,
) -> None:
    """List what is to be mended: letters of one handler, exception and place in the code; the most urgent first.

    It takes the options that groups have: --handler, --topic, --exception, --reason, --version, --status, --origin,
    --group and --since.

    Example: bridge deadletters groups --status open
    """
    with opened(context) as desk:
        found = desk.groups.all(chosen)
    print_found([each.to_data() for each in found], as_json, lambda: tables.groups(console, found))
    if not found and not as_json:
        say(console, "no dead letter fits")


def stats(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Count all dead letters: by handler, reason and status, how fast they come and how soon they are resolved.

    Example: bridge deadletters stats --json
    """
    with opened(context) as desk:
        found = desk.totals.stats()
    print_found(found.to_data(), as_json, lambda: tables.stats(console, found))


def print_list(rows: Iterable[dict[str, Any]]) -> None:
    """A list as JSON, an object a line, as they come: there may be a million."""
    before = "["
    for row in rows:
        sys.stdout.write(f"{before}\n{json.dumps(row)}")
        before = ","
    print("[]" if before == "[" else "\n]")
