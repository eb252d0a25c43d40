"""Whether the desk's database answers, and has the tables of this version."""

from typing import Literal, NamedTuple

from bridge.deadletters.questions.problems import another_step
from bridge.deadletters.store import migrating
from bridge.deadletters.store.database import Database
from bridge.errors import DeskUnavailable


class Reached(NamedTuple):
    """What was found, as a sentence; with a `fault` no recorder starts, with a `warning` one does."""

    level: Literal["ok", "warning", "fault"]
    text: str


def reached(url: str) -> Reached:
    """Ask the database at an address; none is made, and nothing of it is changed.

    Raises nothing: what does not answer is a fault.
    """
    try:
        database = Database(url)
        try:
            if not database.is_there and not database.may_be_made:
                return Reached(
                    "fault",
                    f"the dead letters' database ({database.name}) cannot be made: its folder must exist, and be "
                    "writable by this user.",
                )
            if not database.is_there or (step := database.step) is None:
                return Reached("ok", f"the dead letters' database ({database.name}) is made by who opens it first.")
            if said := another_step(database.name, step):
                return Reached("warning" if migrating.known(step) else "fault", said)
            return Reached("ok", f"the dead letters' database ({database.name}) answers.")
        finally:
            database.close()
    except DeskUnavailable as error:
        return Reached("fault", str(error))
