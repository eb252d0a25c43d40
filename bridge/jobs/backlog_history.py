"""The record of the group's consumer lag and backlog over time, which one of its bridges writes once a minute."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from bridge.jobs.backlog import QueueCounts
from bridge.ledger import Ledger
from bridge.ledger.gauge_history import GaugeKey, write_gauges

_MINUTE: Final = 60


class MinutePeaks:
    """The highest value of each gauge in the current minute (pure)."""

    def __init__(self) -> None:
        self._minute = -1
        self._peaks: dict[GaugeKey, int] = {}

    def add_sample(self, values: Mapping[GaugeKey, int], now: float) -> tuple[int, dict[GaugeKey, int]] | None:
        """Take in values; when a minute (since the epoch) is over, return it with the highest values in it.

        Parameters:
            now: Unix time.
        """
        minute, done = int(now // _MINUTE), None
        if minute != self._minute:
            done = (self._minute, self._peaks) if self._peaks else None
            self._minute, self._peaks = minute, {}
        for key, value in values.items():
            self._peaks[key] = max(value, self._peaks.get(key, 0))
        return done


class BacklogHistory:
    """The history that a bridge writes if it is the first of the living ones by its name: one is enough."""

    def __init__(self, ledger: Ledger, member: str) -> None:
        self._ledger, self._member, self._peaks = ledger, member, MinutePeaks()

    def add_sample(
        self,
        bridges: Mapping[str, Mapping[str, Any]],
        handlers: Collection[str],
        backlogs: Iterable[QueueCounts],
        now: float,
    ) -> None:
        """Take in what the bridges announce, and write a minute that is over.

        Parameters:
            bridges: the announcements of all living bridges.
            handlers: the handlers whose backlog is known.
            backlogs: deliveries that could run now, by queue and handler; of each state.
            now: Unix time.

        Raises:
            LedgerUnavailable: Redis did not answer; this minute is missing in the history.
        """
        done = self._peaks.add_sample(measure_gauges(bridges, handlers, backlogs), now)
        if done is not None and self._member == min(bridges, default=""):
            write_gauges(self._ledger, done[1], done[0])


def measure_gauges(
    bridges: Mapping[str, Mapping[str, Any]], handlers: Collection[str], backlogs: Iterable[QueueCounts]
) -> dict[GaugeKey, int]:
    """Return the lag of each topic, added up over all bridges, and the backlog of each handler (pure)."""
    sums = dict.fromkeys(handlers, 0.0)
    for handler, count in (each for queues in backlogs for counts in queues.values() for each in counts.items()):
        sums[handler] = sums.get(handler, 0.0) + count
    found = {GaugeKey("backlog", handler): round(count) for handler, count in sums.items()}
    for state in bridges.values():
        lags = state.get("lag")
        for topic, records in lags.items() if isinstance(lags, Mapping) else ():
            if isinstance(records, int) and records >= 0:
                key = GaugeKey("lag", topic)
                found[key] = found.get(key, 0) + records
    return found
