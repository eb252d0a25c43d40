"""What leaves as lines of JSON: letters with all that the database has of them, and the trail."""

from collections.abc import Iterator
from functools import partial
from itertools import chain

from bridge.deadletters.masking.exporting import shown
from bridge.web.api import filters
from bridge.web.api.asked import Answer, Asked


def letters(asked: Asked) -> Answer:
    """The letters of a filter, as `bridge deadletters export` writes them; masked for who does not see all of them."""
    wanted = asked.masks.check(filters.meant(asked.query))
    found = asked.desk.transfers.lines(wanted, shown=partial(shown, asked.masks))
    return _file(found, "letters.jsonl")


def trail(asked: Asked) -> Answer:
    """Who did what, newest first."""
    query = asked.query
    return _file(asked.desk.trail.lines(query.by.strip(), query.what), "trail.jsonl")


def _file(lines: Iterator[str], name: str) -> Answer:
    # The first is asked for now: a database that does not answer is a problem, and no file that ends early.
    first = next(lines, None)
    found = lines if first is None else chain([first], lines)
    headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}
    return Answer((f"{line}\n".encode() for line in found), headers=headers)
