"""Bulk actions that pages and the API share: an export stream, and a patch of many values, with limits."""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.editing.json_patch import ValuePatch
from bridge.deadletters.masking.letter_mask import LetterMasks, mask_exported_letter
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanOptions
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.errors import FilterFault, PatchRefused

#: What the lines are.
NDJSON = "application/x-ndjson"


def stream_letters(desk: DeadLetterService, masks: LetterMasks, by: str, asked: LetterFilter) -> Iterator[bytes]:
    """The letters of a filter, as `bridge deadletters export` writes them; the trail has who took them.

    Raises:
        DeskUnavailable, here and not in the middle of a file: the database does not answer.
    """
    return start_stream(desk.transfers.lines(by, asked, shown=partial(mask_exported_letter, masks)))


def start_stream(lines: Iterator[str]) -> Iterator[bytes]:
    """Lines of a file, of which the first is asked for now: what fails is no file that ends early."""
    first = next(lines, None)
    found = lines if first is None else chain([first], lines)
    return (f"{line}\n".encode() for line in found)


def build_download_headers(name: str) -> dict[str, str]:
    """Of a file."""
    return {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}


#: Letters whose values are patched while who asks waits: 0.2 ms of a core each, and 0.5 to 0.8 ms a KB of values.
MAX_PATCHED_LETTERS: Final = 20_000
#: Bytes of values that a request has taken apart: up to 25 s of a core, in which the console answers others slowly. Who
#: asks waits, and a program asks again after two minutes.
MAX_PATCHED_BYTES: Final = 30_000_000


class PatchRequest(NamedTuple):
    """What somebody wants of letters.

    Attributes:
        patch: a JSON Patch, as text: each of its digits stays.
        force: also where a handler would not take what it makes.
    """

    letters: LetterFilter
    patch: str
    why: str
    force: bool


def plan_patch(desk: DeadLetterService, masks: LetterMasks, by: str, wish: PatchRequest) -> BulkPlan:
    """Freeze what a patch makes of letters.

    Raises:
        PatchRefused: it is no patch, or what does not validate is wanted without a reason.
        FilterFault: these are too many letters, or not to be seen whole by who asks, or not open.
    """
    masks.whole(wish.letters.topics, "patch")
    if wish.force and not wish.why:
        raise PatchRefused("What does not validate is sent only with a reason: say why. Nothing was made.")
    check_bulk_size(desk, wish.letters.only_open(), MAX_PATCHED_LETTERS, "patched")
    patch = ValuePatch.read(wish.patch)
    return desk.mending.patch(wish.letters, patch, PlanOptions(), by, wish.why, force=wish.force)


def check_bulk_size(desk: DeadLetterService, wanted: LetterFilter, most: int, done: str) -> None:
    """Refuse what would take longer than who asks waits.

    Parameters:
        done: "checked", "patched": what would be done with them.

    Raises:
        FilterFault: it means more letters than `most`, or more than `MOST_BYTES` of their values.
    """
    weight = desk.letters.weight(wanted, most)
    if weight.letters > most:
        over = f"letters than the {most:,}"
    elif weight.octets > MAX_PATCHED_BYTES:
        over = f"than the {MAX_PATCHED_BYTES:,} bytes of values"
    else:
        return
    raise FilterFault(
        f"This means more {over} that can be {done} at once here: name fewer letters, or take the command "
        "bridge deadletters."
    )
