"""Who has letters, or had them last, that a plan came too late for: so that who was slower knows whom to ask."""

from collections.abc import Iterable, Mapping

from bridge.deadletters.letters.letter import Status
from bridge.deadletters.store import plans
from bridge.deadletters.store.contents import Standing
from bridge.deadletters.store.database import Connection


def holders(connection: Connection, letters: Iterable[Standing]) -> Mapping[int, str]:
    """By the number of a plan who made it; of the plans that have letters which are not open."""
    ids = {each.plan_id for each in letters if each.status is not Status.OPEN and each.plan_id is not None}
    return plans.makers(connection, ids)


def too_late(letter: Standing, by: Mapping[int, str]) -> str:
    """Why a letter that is not open is nobody else's now (pure).

    Parameters:
        by: who made which plan (`holders`).
    """
    said = "it is replaying already" if letter.status is Status.REPLAYING else f"it is {letter.status} by now"
    if letter.plan_id is None:
        return said
    who = f" of {by[letter.plan_id]}" if letter.plan_id in by else ""
    return f"{said}, by plan {letter.plan_id}{who}"
