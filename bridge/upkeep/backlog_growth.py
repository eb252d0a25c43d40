"""How fast the backlog of each queue grows, in seconds of work a second (pure)."""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

#: Seconds of history that are looked at, and that there must be before anything is said.
LOOKED_AT: Final = 60.0
NEEDED: Final = 30.0


class _Sample(NamedTuple):
    at: float
    deliveries: float
    seconds: float


class BacklogGrowth:
    """What a bridge saw of each queue, of the last minute.

    The backlog grows if it was more in the middle of that time than at its beginning, and more at its end than in its
    middle: a burst that workers make less of does not.
    """

    def __init__(self) -> None:
        self._samples: dict[str, deque[_Sample]] = {}
        self._since: dict[str, float] = {}

    def look(self, backlog: Mapping[str, Mapping[str, Mapping[str, float | None]]], now: float) -> dict[str, Any]:
        """Take in a backlog, as `shown` has it; return by queue `deliveries`, `seconds`, `rate` and `since`.

        Parameters:
            now: Unix time.
        """
        found = {}
        for queue, states in backlog.items():
            seconds = [each["seconds"] for each in states.values()]
            if any(each is None for each in seconds):
                self._samples.pop(queue, None)
                continue
            deliveries = sum(each["deliveries"] or 0.0 for each in states.values())
            samples = self._samples.setdefault(queue, deque())
            samples.append(_Sample(now, deliveries, sum(each or 0.0 for each in seconds)))
            while samples and now - samples[0].at > LOOKED_AT:
                samples.popleft()
            rate = _rate(samples)
            if rate <= 0:
                self._since.pop(queue, None)
                continue
            since = self._since.setdefault(queue, samples[0].at)
            last = samples[-1]
            found[queue] = {
                "deliveries": round(last.deliveries),
                "seconds": round(last.seconds, 3),
                "rate": round(rate, 3),
                "since": since,
            }
        return found


def _rate(samples: deque[_Sample]) -> float:
    """Seconds of work by which it grows in a second; 0: it does not, or nobody knows."""
    first, last = samples[0], samples[-1]
    if last.at - first.at < NEEDED:
        return 0.0
    middle = min(samples, key=lambda each: abs(each.at - (first.at + last.at) / 2))
    grows = first.deliveries < middle.deliveries < last.deliveries and first.seconds < last.seconds
    return (last.seconds - first.seconds) / (last.at - first.at) if grows else 0.0
