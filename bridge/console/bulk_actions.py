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

#: The media type of an export.
NDJSON = "application/x-ndjson"


def stream_letters(desk: DeadLetterService, masks: LetterMasks, by: str, asked: LetterFilter) -> Iterator[bytes]:
    """Stream the letters of a filter as `bridge deadletters export` writes them; the audit log has the export.

    Raises:
        DeskUnavailable: the database does not respond; raised here, before the file begins.
    """
    return start_stream(
        desk.transfers.lines(by, asked, shown=partial(mask_exported_letter, masks, payloads=desk.database.payloads))
    )


def start_stream(lines: Iterator[str], end: str = "\n") -> Iterator[bytes]:
    """Return the lines of a file after reading the first one: a failure then is no truncated file.

    Parameters:
        end: what ends each line.
    """
    first = next(lines, None)
    found = lines if first is None else chain([first], lines)
    return (f"{line}{end}".encode() for line in found)


def build_download_headers(name: str) -> dict[str, str]:
    """Return the headers of a file download."""
    return {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}


#: The most letters that are patched in one request: 0.2 ms of a core each, and 0.5 to 0.8 ms a KB of values.
MAX_PATCHED_LETTERS: Final = 20_000
#: Bytes of values that a request has taken apart: up to 25 s of a core, in which the console answers others slowly. Who
#: asks waits, and a program asks again after two minutes.
MAX_PATCHED_BYTES: Final = 30_000_000


class PatchRequest(NamedTuple):
    """A request to patch the values of letters.

    Attributes:
        patch: a JSON Patch, as text, so that numbers keep all their digits.
        force: include values that their handler would refuse.
    """

    letters: LetterFilter
    patch: str
    why: str
    force: bool


def plan_patch(desk: DeadLetterService, masks: LetterMasks, by: str, wish: PatchRequest) -> BulkPlan:
    """Make a plan with the values that a patch makes of letters.

    Raises:
        PatchRefused: it is no JSON Patch, or `force` has no reason.
        FilterFault: too many letters match, or some are not open, or the caller may not see all of their values.
    """
    masks.whole(wish.letters.topics, "patch")
    if wish.force and not wish.why:
        raise PatchRefused("A value that does not validate is sent only with a reason: say why. Nothing was made.")
    check_bulk_size(desk, wish.letters.only_open(), MAX_PATCHED_LETTERS, "patched")
    patch = ValuePatch.read(wish.patch)
    return desk.mending.patch(wish.letters, patch, PlanOptions(), by, wish.why, force=wish.force)


def check_bulk_size(desk: DeadLetterService, wanted: LetterFilter, most: int, done: str) -> None:
    """Refuse a bulk request that would take longer than its caller waits.

    Parameters:
        done: the action as a participle: "checked", "patched".

    Raises:
        FilterFault: it matches more letters than `most`, or more than `MAX_PATCHED_BYTES` of their values.
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
