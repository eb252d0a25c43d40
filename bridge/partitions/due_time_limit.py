"""The limit on due times: how far in the future a record of a retry topic may be due (clock-skew limit)."""

import logging
from dataclasses import replace
from typing import Final

from bridge.formats.retry_record import RetryRecord
from bridge.kafka.clients import TIMESTAMP_LOG_APPEND_TIME, Record

logger = logging.getLogger(__name__)

#: Seconds beyond a topic's delay for which the clocks of workers may be wrong.
SLACK: Final = 5.0


def limit_due_time(due: float, delay: float, appended: float | None, now: float) -> float:
    """Return when a record is due whose worker says `due` (seconds since the epoch).

    No record was written later than now. A time beyond now plus the topic's delay comes from a wrong clock, and would
    hold up all records behind it.

    Parameters:
        delay: seconds for which the topic holds its records.
        appended: when Kafka wrote it, by Kafka's own clock; `None` if the topic keeps the producer's.
        now: by Redis's clock, as far as it is known.
    """
    if due <= now + delay + SLACK:
        return due
    return min(now, now if appended is None else appended) + delay


class ClockSkewLimit:
    """The limit on the due times in the records of one partition.

    Parameters:
        name: of the partition, for the log.
        delay: seconds for which its topic holds its records; 0: no limit.
    """

    def __init__(self, name: str, delay: int) -> None:
        self._name, self._delay = name, delay
        self._logged = False

    def limit(self, parked: RetryRecord, record: Record, now: float) -> RetryRecord:
        """Return a retry record that is due no later than its topic allows."""
        if not self._delay:
            return parked
        kind, at = record.timestamp()
        appended = at / 1000 if kind == TIMESTAMP_LOG_APPEND_TIME else None
        beyond = parked.due - int(limit_due_time(parked.due / 1000, self._delay, appended, now) * 1000)
        if beyond <= 0:
            return parked
        self._log_first(parked, beyond / 1000)
        # A wait that goes on beyond this topic was computed with the same clock.
        until = parked.delivery.due
        delivery = parked.delivery if until is None else replace(parked.delivery, due=until - beyond / 1000)
        return replace(parked, due=parked.due - beyond, delivery=delivery)

    def _log_first(self, parked: RetryRecord, beyond: float) -> None:
        """Log only the first record: a million of them come from the same clock."""
        if self._logged:
            return
        self._logged = True
        logger.warning(
            "%s is parked in %s and due %.0f s later than the topic's delay allows: the clock of the worker that "
            "parked it is wrong. Records like it run after the topic's %d s. Synchronise that host's clock (NTP).",
            str(parked.delivery),
            self._name,
            beyond,
            self._delay,
        )
