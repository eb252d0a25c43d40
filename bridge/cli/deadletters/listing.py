"""`bridge deadletters list`, `groups` and `stats`."""

import json
import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from bridge.cli.answers import FAULTS, NOT_FOUND, console, fail, loaded, print_found
from bridge.cli.deadletters import tables
from bridge.cli.deadletters.absent import tell_absent, tell_unrecorded
from bridge.cli.deadletters.asking import filtered
from bridge.cli.deadletters.opening import opened
from bridge.commands.printing import say
from bridge.deadletters.letters.filters import EVERYTHING, Filter
from bridge.deadletters.questions.in_topics import LAST, look
from bridge.errors import FilterFault, KafkaUnavailable

if TYPE_CHECKING:
    from bridge.deadletters.desk import Desk
    from bridge.deadletters.questions.group_causes import GroupCause

#: Letters that are shown to people, unless they want more.
SHOWN: Final = 50

LimitOption = Annotated[
    int | None,
    typer.Option(min=0, help="Most letters; 0: all.", show_default=f"{SHOWN}, and all as JSON"),
]


@filtered()
def list_letters(
    context: typer.Context,
    chosen: Filter,
    limit: LimitOption = None,
    from_topic: Annotated[bool, typer.Option("--from-topic", help="From Kafka, without a database.")] = False,
    topics: Annotated[list[str] | None, typer.Option(help="With --from-topic: other dead-letter topics.")] = None,
    last: Annotated[int, typer.Option(min=1, help="With --from-topic: records of a partition, the latest.")] = LAST,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list, an object a letter.")] = False,
) -> None:
    """List dead letters, newest first.

    With --from-topic no database is needed, and the letters have neither ids nor statuses.

    Example: bridge deadletters list --handler orders.handlers.charge --since 2h --status open
    """
    if from_topic:
        list_topics(context, chosen, limit, topics or (), last, as_json)
        return
    with opened(context) as desk:
        if as_json:
            print_list(each.to_data() for each in islice(desk.letters.each(chosen), limit or None))
        else:
            _print(desk, chosen, SHOWN if limit is None else limit)
        tell_absent(desk, chosen)
        tell_unrecorded(desk)


def list_topics(
    context: typer.Context, chosen: Filter, limit: int | None, topics: Sequence[str], last: int, as_json: bool
) -> None:
    """The letters in dead-letter topics; what was not looked through is said beside them."""
    _, settings, routes = loaded(context.obj)
    most = (None if as_json else SHOWN) if limit is None else limit or None
    try:
        looked = look(settings, routes, chosen, last, most, topics)
    except FilterFault as error:
        fail(str(error), FAULTS)
    except KafkaUnavailable as error:
        fail(str(error), NOT_FOUND)
    if as_json:
        print_list(each.to_data() | dict.fromkeys(("id", "status", "group")) for each in looked.letters)
    else:
        tables.letters(console, looked.letters, standing=False)
        if not looked.letters:
            say(console, "no dead letter fits")
    for topic in looked.missing:
        print(f"there is no topic {topic}.", file=sys.stderr)
    for (topic, partition), first in looked.looked_from.items():
        print(f"{topic}-{partition} was looked through from offset {first} on (--last).", file=sys.stderr)


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


@filtered()
def groups(
    context: typer.Context,
    chosen: Filter,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list, an object a group.")] = False,
) -> None:
    """List failure groups: dead letters of one handler, exception and place in the code; the most urgent first.

    It takes the options that groups have: --handler, --topic, --exception, --reason, --version, --status, --origin,
    --group, --cause and --since. With --group the causes of each group follow: each may be replayed, or discarded,
    alone (--group 7 --cause 1f0c…).

    Example: bridge deadletters groups --status open
    """
    with opened(context) as desk:
        found = desk.groups.all(chosen)
        causes = desk.causes.of([each.id for each in found]) if chosen.groups else {}
        data = [each.to_data() | _causes_data(causes.get(each.id)) for each in found]
        print_found(data, as_json, lambda: tables.groups(console, found, causes))
        if not found and not as_json:
            say(console, "no dead letter fits")
            tell_absent(desk, chosen)
        tell_unrecorded(desk)


def _causes_data(causes: Sequence["GroupCause"] | None) -> dict[str, Any]:
    return {} if causes is None else {"causes": [each.to_data() for each in causes]}


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
        tell_absent(desk, EVERYTHING)
        tell_unrecorded(desk)


def print_list(rows: Iterable[dict[str, Any]]) -> None:
    """A list as JSON, an object a line, as they come: there may be a million."""
    before = "["
    for row in rows:
        sys.stdout.write(f"{before}\n{json.dumps(row)}")
        before = ","
    print("[]" if before == "[" else "\n]")
