"""The poison rules: which message has killed its workers or processes, and how suspected ones run apart.

When a worker dies, one of the messages that it had begun may be the cause: all of them are *suspected*. A suspected
message runs again beside harmless ones, but apart from other suspected ones. After one death it begins half a second
after the one before: a lost machine leaves many suspects and no poison, and they must not wait for each other's end.
After two deaths it is the only suspected message in its worker, so no message dies with the same poison a third time.
A run that ends, in success or failure, clears a message.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from time import monotonic
from typing import Any, Final, NamedTuple

#: Processes lost with one message alone that make it poison (`lost_limit`), and the seconds before it runs again after
#: each (`lost_pauses`).
LOST_LIMIT: Final = 3
LOST_PAUSES: Final = (1, 5)
#: Workers and processes together that died with a message and make it poison (`restored_limit`).
RESTORED_LIMIT: Final = 6
#: Seconds between the starts of two suspected messages in one worker, unless the first has ended.
APART: Final = 0.5
#: From this many dead workers on a message runs with no other suspected one.
ALONE_FROM: Final = 2


class Suspicion(Enum):
    """The suspicion that the deaths of workers cast on a message that they held."""

    NONE = auto()  # it may run
    SUSPECTED = auto()  # it may have killed them: it runs apart from other suspected messages
    POISON = auto()  # it has killed them


def find_lost_pause(times: int, pauses: Sequence[float]) -> float:
    """Return the seconds to wait after the `times`-th lost process (from 1); the last pause repeats for ever."""
    return pauses[min(max(times, 1), len(pauses)) - 1]


def count_deaths(restored: int, prefetched: int) -> int:
    """Return how many workers a message may have killed.

    Parameters:
        restored: whole workers that died after it had begun there.
        prefetched: those that died before it had begun, as far as Redis knew. A message that kills at once is not
            always seen to begin; one such death is chance.
    """
    return restored + max(0, prefetched - 1)


def judge_message(deaths: int, lost: int, limit: float) -> Suspicion:
    """Return whether a message has killed its workers, may have, or has not.

    Parameters:
        deaths: as `count_deaths` returns them.
        lost: processes that died with it alone.
        limit: of workers and processes together.
    """
    if not deaths:
        return Suspicion.NONE
    # Lost processes have a limit of their own, and one worker's death says little.
    return Suspicion.POISON if deaths >= 2 and deaths + lost >= limit else Suspicion.SUSPECTED


def has_killed_processes(lost: int, limit: float) -> bool:
    """Return whether a message is poison after the loss of a process that ran it; if not, it runs again.

    Parameters:
        lost: processes that were lost with it alone.
        limit: of them (`lost_limit`).
    """
    return lost >= limit


class SuspectedMessage(NamedTuple):
    """A suspected message that runs in this worker."""

    message: Any
    deaths: int
    since: float


class PoisonIsolation:
    """The gatekeeper of a worker: suspected messages run one after another, and alone after two deaths."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._running: list[SuspectedMessage] = []

    def admits(self, message: Any, deaths: int) -> bool:
        """Return whether a message may run now; if so, it counts as running until it is acknowledged."""
        now = self._now()
        self._running = [each for each in self._running if not _is_over(each.message)]
        if not all(_may_run_beside(each, deaths, now) for each in self._running):
            return False
        self._running.append(SuspectedMessage(message, deaths, now))
        return True


def _may_run_beside(other: SuspectedMessage, deaths: int, now: float) -> bool:
    return max(other.deaths, deaths) < ALONE_FROM and now - other.since >= APART


def _is_over(message: Any) -> bool:
    return bool(message.acknowledged) or bool(getattr(message.channel, "closed", False))
