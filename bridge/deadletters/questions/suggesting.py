"""What to do with a letter next, and why: one suggestion (pure)."""

from enum import StrEnum
from typing import NamedTuple

from bridge.deadletters.letters.letter import Status
from bridge.deadletters.questions.shown import Shown


class Do(StrEnum):
    """What can be done next."""

    WATCH = "watch"
    WAIT = "wait"
    REPLAY = "replay"
    DISCARD = "discard"
    EDIT = "edit"
    LOOK = "look"
    NOTHING = "nothing"


class Suggestion(NamedTuple):
    """What to do next.

    Attributes:
        why: in a sentence or two.
    """

    do: Do
    why: str


def suggestion(letter: Shown) -> Suggestion:
    """What to do with a letter next."""
    it = letter.listed
    if it.status is Status.REPLAYING:
        return Suggestion(Do.WATCH, f"Plan {it.plan} has sent it back; how that ends is known within seconds of it.")
    if it.status is not Status.OPEN:
        return Suggestion(Do.NOTHING, f"It is {it.status}.")
    if it.reason == "undecodable":
        return Suggestion(Do.EDIT, "Its value could not be read, so its handler never ran. Unchanged it fails again.")
    if it.failures > 1:
        times = f"It has died {it.failures:,} times"
        on = f", the last time on {it.version}" if it.version else ""
        return Suggestion(Do.EDIT, f"{times}{on}: a replay does not cure it by itself.")
    return Suggestion(Do.LOOK, "What failed stands below. Once that is mended, a replay sends the letter back.")
