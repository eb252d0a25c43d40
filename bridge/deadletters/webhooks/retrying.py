"""When what was not taken is sent again (pure)."""

from collections.abc import Callable
from typing import Final

#: Ms to the second try; each further pause is so many times as long, up to the longest.
FIRST: Final = 5_000
TIMES: Final = 3
LONGEST: Final = 3_600_000
#: Ms after what is told for which it is tried.
GIVE_UP_AFTER: Final = 86_400_000
#: The part of a pause that is left to chance: all that a receiver has missed does not come at one time.
JITTER: Final = 0.3


def next_try(tries: int, made_at: int, now: int, wanted: float | None, chance: Callable[[], float]) -> int | None:
    """When it is tried again, ms since the epoch; `None`: it is given up.

    Parameters:
        tries: how often it was, 1 or more.
        wanted: the seconds after which the receiver wants it again (`Retry-After`); never more than the longest pause.
        chance: gives a number from 0 to 1.
    """
    pause = min(LONGEST, FIRST * TIMES ** min(tries - 1, 20)) * (1 - JITTER * chance())
    at = now + int(max(pause, min(LONGEST, (wanted or 0) * 1000)))
    return at if at <= made_at + GIVE_UP_AFTER else None
