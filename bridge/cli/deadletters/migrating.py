"""`bridge deadletters migrate`: the tables, made and changed by hand."""

from typing import Annotated

import typer

from bridge.cli.answers import FAULTS, NOT_FOUND, console, fail, loaded, print_found
from bridge.cli.deadletters.opening import need_extra
from bridge.commands.printing import say
from bridge.errors import DeskUnavailable, NoSuchStep


def migrate(
    context: typer.Context,
    to: Annotated[str, typer.Option("--to", help="A step of this version, where it is not the newest.")] = "head",
    as_json: Annotated[bool, typer.Option("--json", help="Print {database, before, now}.")] = False,
) -> None:
    """Make the desk's tables, or bring them to what this version needs.

    Every command does that by itself, where its user of the database may. Run this as the owner of the tables where it
    may not; and with --to before an older version of the bridge is deployed again, once nothing of this version runs,
    as that would bring it back. Of a step that is taken back the letters stay, and what it brought goes: of 0004 the
    webhooks.

    Example: DEADLETTERS_DATABASE_URL=postgresql://owner@db/desk bridge deadletters migrate
    """
    _, settings, _ = loaded(context.obj, desk=True)
    need_extra()
    from bridge.deadletters.desk import Desk

    try:
        database, before, now = Desk.migrated(settings, to)
    except NoSuchStep as error:
        fail(str(error), FAULTS)
    except DeskUnavailable as error:
        fail(str(error), NOT_FOUND)
    found = {"database": database, "before": before, "now": now}
    print_found(found, as_json, lambda: say(console, _told(database, before, now)))


def _told(database: str, before: str | None, now: str) -> str:
    if before == now:
        return f"{database} is at step {now} already: nothing to do"
    brought = f"{database} was brought from {f'step {before}' if before else 'no tables'} to step {now}"
    if before and before > now:
        return f"{brought}; each command of this version would bring it to its newest again: let none run"
    return brought
