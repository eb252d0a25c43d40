"""JSON Patches over many letters, as a page and the API ask for them; nothing is sent before the plan is applied."""

from typing import Final, NamedTuple

from bridge.deadletters.desk import Desk
from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.masking.masks import Masks
from bridge.deadletters.mending.patching import Patch
from bridge.deadletters.plan.plan import Options, Plan
from bridge.errors import FilterFault, PatchRefused

#: Letters whose values are patched while who asks waits: 0.2 ms of a core each, and 0.5 to 0.8 ms a KB of values.
MOST: Final = 20_000
#: Bytes of values that a request has taken apart: up to 25 s of a core, in which the console answers others slowly. Who
#: asks waits, and a program asks again after two minutes.
MOST_BYTES: Final = 30_000_000


class Wish(NamedTuple):
    """What somebody wants of letters.

    Attributes:
        patch: a JSON Patch, as text: each of its digits stays.
        force: also where a handler would not take what it makes.
    """

    letters: Filter
    patch: str
    why: str
    force: bool


def planned(desk: Desk, masks: Masks, by: str, wish: Wish) -> Plan:
    """Freeze what a patch makes of letters.

    Raises:
        PatchRefused: it is no patch, or what does not validate is wanted without a reason.
        FilterFault: these are too many letters, or not to be seen whole by who asks, or not open.
    """
    masks.whole(wish.letters.topics, "patch")
    if wish.force and not wish.why:
        raise PatchRefused("What does not validate is sent only with a reason: say why. Nothing was made.")
    bounded(desk, wish.letters.only_open(), MOST, "patched")
    patch = Patch.read(wish.patch)
    return desk.mending.patch(wish.letters, patch, Options(), by, wish.why, force=wish.force)


def bounded(desk: Desk, wanted: Filter, most: int, done: str) -> None:
    """Refuse what would take longer than who asks waits.

    Parameters:
        done: "checked", "patched": what would be done with them.

    Raises:
        FilterFault: it means more letters than `most`, or more than `MOST_BYTES` of their values.
    """
    weight = desk.letters.weight(wanted, most)
    if weight.letters > most:
        over = f"letters than the {most:,}"
    elif weight.octets > MOST_BYTES:
        over = f"than the {MOST_BYTES:,} bytes of values"
    else:
        return
    raise FilterFault(
        f"This means more {over} that can be {done} at once here: name fewer letters, or take the command "
        "bridge deadletters."
    )
