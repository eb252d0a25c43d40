"""One letter for people: everything that is known of it, and what to do next."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from bridge.cli.deadletters.payload import payload
from bridge.cli.deadletters.tables import COLOURS
from bridge.commands.printing import EMPTY, say
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.letters.place import is_users
from bridge.deadletters.mending.differences import difference
from bridge.deadletters.questions.shown import Shown, as_text, moment
from bridge.deadletters.questions.timeline import timeline
from bridge.records.failure import cut


def print_letter(
    console: Console, letter: Shown, others: Sequence[Mapping[str, Any]] | str, stored: bool = True
) -> None:
    """Everything that is known of a letter.

    Parameters:
        others: how the deliveries of its record stand, as `bridge find` has them; or why that is not known.
        stored: whether it is in the database: in a topic it has no number and no status.
    """
    _print_head(console, letter, stored)
    _print_value(console, letter)
    _print_original(console, letter)
    _print_traceback(console, letter)
    say(console, "what happened (UTC)", "bold")
    for event in timeline(letter):
        say(console, f"  {_clock(event.at)}  {event.said}", "red" if event.bad else None)
    _print_others(console, letter, others)
    if stored:
        say(console, "what to do", "bold")
        for command in commands(letter):
            say(console, f"  {command}")


def _print_head(console: Console, letter: Shown, stored: bool) -> None:
    it = letter.listed
    title = f"letter {it.id}: {it.name}" if stored else f"{letter.where}: {it.name}"
    say(console, title, "bold")
    if stored:
        say(console, f"  {it.status} since {_clock(letter.status_at)}, in group {it.group}", COLOURS[it.status])
    for name, said in _facts(letter):
        say(console, f"  {name:<9} {said}")


def _facts(letter: Shown) -> Iterator[tuple[str, str]]:
    it = letter.listed
    said = f": {it.error_message}" if it.error_message else ""
    yield "error", f"{it.error_class}{said}" if it.error_class else it.error_message or "nobody says"
    yield "why", f"{it.reason or 'nobody says'}; attempts: {letter.attempts if any(letter.attempts) else it.runs}"
    if it.place:
        yield "where", it.place
    if it.version:
        yield "version", it.version
    if it.origin != "bridge":
        yield "written", f"by {it.origin}, for {it.consumer_group or 'nobody that it names'}"
    if it.failures > 1:
        yield "again", f"it has died {it.failures} times: a replay does not cure it by itself"
    yield "lies", letter.where + (f", {it.occurrences} times" if it.occurrences > it.failures else "")
    if it.key is not None:
        yield "key", cut(as_text(it.key) or EMPTY, 200)
    for name, value in letter.headers:
        yield "header", f"{name} = {'(none)' if value is None else cut(as_text(value) or '', 200)}"


def _print_value(console: Console, letter: Shown) -> None:
    if not letter.kept:
        size = letter.listed.value_size
        say(
            console,
            f"value, {size:,} bytes: too large to be kept here, and Kafka has dropped it or does not answer",
            "bold",
        )
        return
    found = payload(letter.value)
    length = "" if letter.value is None else f", {len(letter.value):,} bytes"
    say(console, f"value{length}, {found.kind}", "bold")
    for line in found.lines:
        say(console, f"  {line}")
    if found.more:
        unit = "bytes" if found.kind == "bytes" else "lines"
        say(console, f"  … {found.more:,} more {unit}: --value gives all of it")


def _print_original(console: Console, letter: Shown) -> None:
    """How its value differs from the one that failed first, where somebody has mended it."""
    original = next((each for each in letter.history if each.mended), None)
    if original is None:
        return
    say(console, "the edits of the value that failed first", "bold")
    if not (original.kept and letter.kept):
        say(console, f"  it is too large to be kept here; it lies at {original.where}")
        return
    for line in difference(original.value, letter.value).splitlines()[2:]:
        say(console, f"  {line}")


def _print_traceback(console: Console, letter: Shown) -> None:
    if not letter.traceback:
        return
    say(console, "traceback (your code is marked with >)", "bold")
    mine = False
    for line in letter.traceback.splitlines():
        # What stands under a frame is its line of code.
        mine = is_users(line, letter.listed.handler) or (mine and line.startswith("    "))
        say(console, f"{'>' if mine else ' '} {line}", None if mine else "dim")


def _print_others(console: Console, letter: Shown, others: Sequence[Mapping[str, Any]] | str) -> None:
    say(console, "the deliveries of its record, as the ledger has them", "bold")
    if isinstance(others, str):
        say(console, f"  {others}")
        return
    for each in others:
        this = " (this one)" if each["handler"] == letter.listed.handler else ""
        where = f": {each['where']}" if each["where"] else ""
        say(console, f"  {each['handler']}: {each['fate']}{where}{this}")


def _clock(at: int) -> str:
    """To the second, in UTC."""
    return str(moment(at))[:19].replace("T", " ")


def commands(letter: Shown) -> list[str]:
    """What a person may do with it next, to be copied."""
    it = letter.listed
    mine = f"bridge deadletters list --group {it.group}"
    match it.status:
        case Status.OPEN if letter.is_of_nowhere:
            found = [f"bridge deadletters replay {it.id} --to-topic TOPIC", f"bridge deadletters archive {it.id}"]
            return [*found, f'bridge deadletters discard {it.id} --why "…"', mine]
        case Status.OPEN:
            found = [f"bridge deadletters replay {it.id} --wait", f"bridge deadletters edit {it.id}"]
            found.append(f'bridge deadletters discard {it.id} --why "…"')
            return [*found, mine, f"bridge deadletters fixed {it.group} VERSION"]
        case Status.REPLAYING if letter.is_unknown:
            place = f"bridge find {it.topic}-{it.partition}-{it.offset}"
            found = [f'bridge deadletters {each} {it.id} --why "…"' for each in ("resolve", "reopen")]
            return [place, *found, f"bridge deadletters plans show {it.plan}"]
        case Status.REPLAYING:
            return [f"bridge deadletters plans show {it.plan}", f"bridge find {it.topic}-{it.partition}-{it.offset}"]
        case Status.DISCARDED | Status.ARCHIVED if it.origin == "bridge":
            # It was a mistake: once more, whatever the ledger has of it.
            place = f"{it.topic} --partition {it.partition} --from {it.offset} --to {it.offset + 1}"
            return [f"bridge redrive {place} --handler {it.handler} --again --wait", mine]
    return [mine]
