"""Letters that leave as lines of JSON, for who does not see all of them: the same by a page and by the API."""

from collections.abc import Iterator
from functools import partial
from itertools import chain

from bridge.deadletters.desk import Desk
from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.masking.exporting import shown
from bridge.deadletters.masking.masks import Masks

#: What the lines are.
LINES = "application/x-ndjson"


def letters(desk: Desk, masks: Masks, by: str, asked: Filter) -> Iterator[bytes]:
    """The letters of a filter, as `bridge deadletters export` writes them; the trail has who took them.

    Raises:
        DeskUnavailable, here and not in the middle of a file: the database does not answer.
    """
    return begun(desk.transfers.lines(by, asked, shown=partial(shown, masks)))


def begun(lines: Iterator[str]) -> Iterator[bytes]:
    """Lines of a file, of which the first is asked for now: what fails is no file that ends early."""
    first = next(lines, None)
    found = lines if first is None else chain([first], lines)
    return (f"{line}\n".encode() for line in found)


def headers(name: str) -> dict[str, str]:
    """Of a file."""
    return {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}
