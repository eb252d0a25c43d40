"""How far a record's due time may lie in the future: no farther than its retry topic's delay."""

import logging
from dataclasses import replace
from typing import Final

from bridge.formats.retry_record import RetryRecord
from bridge.kafka.clients import TIMESTAMP_LOG_APPEND_TIME, Record

logger = logging.getLogger(__name__)

#: Seconds beyond a topic's delay for which the clocks of workers may be wrong.
SLACK: Final = 5.0


def limit_due_time(due: float, delay: float, appended: float | None, now: float) -> float:
    """When a record is due that its worker says is due at `due` (seconds since the epoch).

    Nothing was written later than now: a time beyond that and the topic's delay is that of a clock which goes ahead, or
    of no clock, and would hold up all that lies behind it.

    Parameters:
        delay: seconds for which the topic holds its records.
        appended: when Kafka wrote it, by Kafka's own clock; `None` where the topic has the producer's.
        now: by the clock of Redis, as far as it is known.
    """
    if due <= now + delay + SLACK:
        return due
    return min(now, now if appended is None else appended) + delay


class ClockSkewLimit:
    """What is believed of the times in the records of one partition.

    Parameters:
        name: of the partition, for the log.
        delay: seconds for which its topic holds its records; 0: all is believed.
    """

    def __init__(self, name: str, delay: int) -> None:
        self._name, self._delay = name, delay
        self._said = False

    def in_time(self, parked: RetryRecord, record: Record, now: float) -> RetryRecord:
        """What a record holds, due no later than its topic allows."""
        if not self._delay:
            return parked
        kind, at = record.timestamp()
        appended = at / 1000 if kind == TIMESTAMP_LOG_APPEND_TIME else None
        beyond = parked.due - int(limit_due_time(parked.due / 1000, self._delay, appended, now) * 1000)
        if beyond <= 0:
            return parked
        self._say(parked, beyond / 1000)
        # What waits beyond this topic was reckoned by the same clock.
        until = parked.delivery.due
        delivery = parked.delivery if until is None else replace(parked.delivery, due=until - beyond / 1000)
        return replace(parked, due=parked.due - beyond, delivery=delivery)

    def _say(self, parked: RetryRecord, beyond: float) -> None:
        """Once: a million of them are of the same clock."""
        if self._said:
            return
        self._said = True
        logger.warning(
            "%s is parked in %s to be due %.0f s later than that holds its records: the clock of the worker that "
            "parked it is wrong. It runs when the topic's %d s are over, as do others like it: set that host's clock.",
            str(parked.delivery),
            self._name,
            beyond,
            self._delay,
        )
