"""`bridge deadletters show`."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from celery import Celery

from bridge.cli.answers import FAULTS, NOT_FOUND, console, fail, loaded, print_found
from bridge.cli.deadletters.letter_page import print_letter
from bridge.cli.deadletters.opening import opened
from bridge.commands.elsewhere import elsewhere
from bridge.commands.find import coordinates
from bridge.deadletters.questions.in_topics import LAST, one, with_value
from bridge.deadletters.questions.shown import Shown
from bridge.errors import KafkaUnavailable, NoSuchLetter
from bridge.handlers import Routes
from bridge.settings import Settings

if TYPE_CHECKING:
    from bridge.deadletters.desk import Desk


def show(
    context: typer.Context,
    letter: Annotated[str, typer.Argument(help="An id, or orders-3-1234, or orders-3-1234:HANDLER.")],
    value: Annotated[bool, typer.Option("--value", help="Print the value alone, byte for byte.")] = False,
    from_topic: Annotated[bool, typer.Option("--from-topic", help="From Kafka, without a database.")] = False,
    last: Annotated[int, typer.Option(min=1, help="With --from-topic: records of a partition, the latest.")] = LAST,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Show all that is known of one letter: value, headers, traceback, what happened to it, and what to do next.

    With --from-topic also where it lies itself: orders.dlq-3-17. Exits 1 if there is no such letter.

    Example: bridge deadletters show orders-3-1234
    """
    if from_topic:
        app, settings, routes = loaded(context.obj)
        try:
            found = _in_topic(settings, letter, last)
        except KafkaUnavailable as error:
            fail(str(error), NOT_FOUND)
        _print(app, settings, routes, found, value, as_json, stored=False)
    else:
        with opened(context) as desk:
            found = _with_value(desk, _in_database(desk, letter))
            found = replace(found, trail=(*found.trail, *desk.notes.of_group(found.listed.group)))
            _print(desk.app, desk.settings, desk.routes, found, value, as_json)


def _in_database(desk: "Desk", named: str) -> Shown:
    if named.isdecimal():
        return desk.letters.one(int(named))
    found = [each.id for each in desk.letters.at(*_place(named))]
    if not found:
        raise NoSuchLetter(f"there is no dead letter of {named}: `bridge find` says where its deliveries stand.")
    if len(found) > 1:
        fail(f"{named} has {len(found)} dead letters, say which: {', '.join(map(str, found))}.", FAULTS)
    return desk.letters.one(found[0])


def _in_topic(settings: Settings, named: str, last: int) -> Shown:
    found = one(settings, *_place(named), last)
    if not found:
        fail(f"none of the latest {last:,} records of a partition is {named}'s: look further back with --last.", FAULTS)
    if len(found) > 1:
        fail(f"{named} has {len(found)} dead letters, say which: {', '.join(e.listed.name for e in found)}.", FAULTS)
    return found[0]


def _place(named: str) -> tuple[str, int, int, str | None]:
    record, _, handler = named.partition(":")
    if (place := coordinates(record)) is None:
        fail(f"{named!r} is neither an id nor a record (orders-3-1234, orders-3-1234:HANDLER).", FAULTS)
    return *place, handler or None


def _with_value(desk: "Desk", letter: Shown) -> Shown:
    """What is too large for the database is read from Kafka, if it is still there."""
    try:
        return with_value(desk.settings, letter)
    except KafkaUnavailable as error:
        print(error, file=sys.stderr)
        return letter


def _print(
    app: Celery, settings: Settings, routes: Routes, letter: Shown, value: bool, as_json: bool, stored: bool = True
) -> None:
    if value:
        if not letter.kept:
            fail("its value is too large for the database, and Kafka does not have it any more.", FAULTS)
        sys.stdout.buffer.write(letter.value or b"")
        return
    it = letter.listed
    others = elsewhere(app, settings, routes, it.origin, it.topic, it.partition, it.offset)
    data = letter.to_data() | {"deliveries": None if isinstance(others, str) else list(others)}
    if not stored:
        data |= dict.fromkeys(("id", "status", "status_at", "group", "recorded_at"))
    print_found(data, as_json, lambda: print_letter(console, letter, others, stored))
