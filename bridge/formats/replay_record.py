"""The record of a delivery that is sent back to its handler through a replay topic: its headers.

It is read as a record of a retry topic is, by bridge/formats/retry_record.py.
"""

from collections.abc import Sequence

from bridge.formats.delivery import NO_ATTEMPTS, Attempts, Delivery, Header, Message
from bridge.formats.delivery_identity import Origin
from bridge.formats.record_headers import RecordHeaders
from bridge.formats.retry_record import retry_headers


def replay_headers(
    origin: Origin,
    theirs: Sequence[Header],
    *,
    timestamp: int | None,
    number: int = 0,
    runs: int = 0,
    attempts: Attempts = NO_ATTEMPTS,
    again: str = "",
    once: bool = False,
    trace: str = "",
) -> RecordHeaders:
    """Return the headers of a delivery that is sent back: the producer's, then ours.

    It starts again with all its retries and its whole `give_up_after`, and without its lost processes. It keeps the
    number of runs and of replays, with one more of these.

    Parameters:
        theirs: the producer's own headers, in order.
        timestamp: of the source record, ms since the epoch.
        number, runs, attempts: as in its last dead letter; the defaults if it never died.
        again: the request (ASCII, such as a plan's name) to run although the source record is done; its work is done
            once for each request. Empty: it runs only if it is not done.
        once: it has one attempt instead of all its retries, this time only, also further along a `sequence`.
        trace: the context of its last hop.
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
    asked = {"again": again, "once": once, "trace": trace}
    delivery = Delivery(message, origin.handler, number=number + 1, runs=runs, attempts=back, **asked)  # type: ignore[arg-type]
    return retry_headers(delivery, origin.group)
