"""A record of the replay topic: the headers with which a delivery is sent back, to its one handler alone (pure).

Key, value and the producer's headers are written beside it as they were, or as a person has mended them. It is read as
any record of a retry or replay topic (bridge.records.parked.read).
"""

from collections.abc import Sequence

from bridge.records.added import RecordHeaders
from bridge.records.attempts import NONE, Attempts
from bridge.records.message import Delivery, Header, Message
from bridge.records.origin import Origin
from bridge.records.parked import headers


def replayed(
    origin: Origin,
    theirs: Sequence[Header],
    *,
    timestamp: int | None,
    number: int = 0,
    runs: int = 0,
    attempts: Attempts = NONE,
    again: str = "",
    once: bool = False,
) -> RecordHeaders:
    """The headers of a delivery that is sent back: the producer's, and behind them ours.

    It begins anew: it has all its retries, its whole `give_up_after`, and no lost process counts against it. What it
    keeps is how often it ran, and how often it was sent back, now once more.

    Parameters:
        theirs: the producer's own headers, in order.
        timestamp: of the message where it first lay, ms since the epoch.
        number, runs, attempts: as its last dead letter says (`Letter`); of what never died, the defaults.
        again: by what it is asked to run though its origin is done, ASCII, another one each time that it is asked (the
            name of a plan); its work is done once for each. Empty: it runs only if it is not done.
        once: it has one attempt instead of all its retries; this time only, also where it goes on along a `sequence`.
    """
    message = Message(
        origin.topic,
        origin.partition,
        origin.offset,
        headers=tuple(theirs),
        timestamp=timestamp,
        origin=f"  {origin.topic_id}",
    )
    back = Attempts(replayed=attempts.replayed + 1)
    delivery = Delivery(message, origin.handler, number=number + 1, runs=runs, attempts=back, again=again, once=once)
    return headers(delivery, origin.group)
