"""What is known of a delivery beside its record: written into the header of a Celery message, and read again.

Of one that is new nothing is known, and nothing is written.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from bridge.records.attempts import NONE, Attempts
from bridge.records.failure import Failure
from bridge.records.message import Dead, Delivery, Message, Via
from bridge.records.outgoing import Outgoing

#: What is written of a delivery beside its record, where it is not nothing.
_WRITTEN: Final = ("number", "first_failed_at", "publish_tries", "error", "ended", "due", "again", "once")


class Told(NamedTuple):
    """What a header says of one delivery beside its record.

    Attributes:
        runs: how often the handler ran for it.
        attempts: what became of that.
        number: how often it was parked or replayed.
        error: the last failure in words.
        first_failed_at: milliseconds since the epoch, or None.
        dead: why it is dead, where Kafka has not taken its dead letter yet; else empty.
        via: the record of a retry or replay topic by which it came.
    """

    runs: int = 0
    attempts: Attempts = NONE
    number: int = 0
    error: str = ""
    first_failed_at: int | None = None
    dead: str = ""
    via: Via | None = None

    @classmethod
    def of(cls, more: Mapping[str, Any], via: Via | None) -> "Told":
        """Read what is known; `via` as `delivery_of` has it."""
        first, dead = more.get("first_failed_at"), more.get("dead") or {}
        return cls(
            int(more.get("attempts", 0)),
            attempts_in(more),
            int(more.get("number", 0)),
            str(more.get("error", "")),
            int(first) if first else None,
            str(dead.get("reason", "")),
            None if via is None else via._replace(offset=int(more["via"])),
        )


def more_of(delivery: Delivery) -> dict[str, Any]:
    """What is known of a delivery beside its record.

    `attempts` and `failures` are what the first version has: how often it ran, and how many runs spent a retry.
    """
    more: dict[str, Any] = {name: value for name in _WRITTEN if (value := getattr(delivery, name))}
    if delivery.via is not None:
        more["via"] = delivery.via.offset
    if delivery.after is not None:
        more["after"] = delivery.after
    if delivery.outgoing:
        more["outgoing"] = [each.to_data() for each in delivery.outgoing]
    if delivery.runs or any(delivery.attempts):
        failed, lost, postponed, replayed = delivery.attempts
        counts = {"attempts": delivery.runs, "failures": failed, "lost": lost, "replayed": replayed}
        more.update((name, count) for name, count in counts.items() if count)
        # Always: without it, it is what older versions count as neither.
        more["postponed"] = postponed
    return more


def with_dead(dead: Dead | None, more: Mapping[str, Any] | None) -> dict[str, Any]:
    """The same, and why it is dead, where it is."""
    if dead is None:
        return dict(more or {})
    version = {"version": dead.version} if dead.version else {}
    return {**(more or {}), "dead": {"reason": dead.reason, **version, **dead.failure.to_data()}}


def delivery_of(message: Message, handler: str, runs: int, more: Mapping[str, Any], via: Via | None = None) -> Delivery:
    """The delivery of which so much is known.

    Parameters:
        via: the partition of a retry or replay topic by which it came; where it lay there is in `more`.
    """
    dead = more.get("dead")
    return Delivery(
        message=message,
        handler=handler,
        number=int(more.get("number", 0)),
        runs=runs,
        attempts=message.attempts,
        first_failed_at=int(more.get("first_failed_at") or 0) or None,
        dead=None if dead is None else Dead(str(dead["reason"]), Failure.from_data(dead), str(dead.get("version", ""))),
        publish_tries=int(more.get("publish_tries", 0)),
        error=str(more.get("error", "")),
        ended=str(more.get("ended") or ""),
        due=float(more["due"]) if more.get("due") else None,
        via=None if via is None else via._replace(offset=int(more["via"])),
        after=int(more["after"]) if more.get("after") is not None else None,
        outgoing=tuple(map(Outgoing.from_data, more.get("outgoing") or ())),
        again=str(more.get("again") or ""),
        once=bool(more.get("once")),
    )


def attempts_in(more: Mapping[str, Any]) -> Attempts:
    """What became of its runs."""
    failed, lost = int(more.get("failures", 0)), int(more.get("lost", 0))
    # An older version says how often it ran, and how many of those runs failed.
    postponed = more["postponed"] if "postponed" in more else max(0, int(more.get("attempts", 0)) - failed)
    return Attempts(failed, lost, int(postponed), int(more.get("replayed", 0)))
