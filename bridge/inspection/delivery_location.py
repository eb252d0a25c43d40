"""The location of one delivery, as `bridge find` says it: a queue, a retry topic, a dead-letter topic (pure)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from bridge.dispatch.carrier_message import CarrierMessage, DeliveryKey
from bridge.formats.dead_letter_record import DeadLetterSummary
from bridge.formats.retry_record import RetryRecord
from bridge.formats.text_forms import format_time
from bridge.ledger import Fate
from bridge.ledger.retry_records import UnsettledRecord


@dataclass(frozen=True)
class DeliveryLocator:
    """What is known of some deliveries of one topic.

    Attributes:
        dead_letters: the name of their topic.
        again: seconds after which what is in no message is handed off again (`kafka_stuck_after`).
        since: when those were handed off that are under way, about.
        before: those that began before their handler did.
        forgotten: those that were committed on the ground of a ledger that is no more.
        halted: whether the topic is.
        carriers: the Celery messages that carry them; `silent`: why that cannot be told.
        parked: the records of retry and replay topics in which they lie, and what these hold.
        queues: by handler.
    """

    topic: str
    dead_letters: str
    again: float
    since: Mapping[DeliveryKey, float]
    before: Collection[DeliveryKey]
    forgotten: Collection[DeliveryKey]
    halted: bool
    carriers: Mapping[DeliveryKey, CarrierMessage]
    silent: str | None
    letters: Mapping[DeliveryKey, DeadLetterSummary]
    parked: Mapping[DeliveryKey, tuple[UnsettledRecord, RetryRecord]]
    queues: Mapping[str, str]

    def of(self, which: DeliveryKey, fate: Fate) -> dict[str, Any]:
        """Where one stands, as JSON-able data."""
        said = self._said(which, fate)
        attempts = dict.fromkeys(("failed", "lost", "postponed", "replayed")) | said.pop("attempts", {})
        at, until = said.pop("at", None), said.pop("until", None)
        return {
            "handler": which[2],
            "fate": fate.name.lower(),
            "where": said.get("where"),
            "since": None if at is None else format_time(at, "seconds" if fate is Fate.HANDED else "milliseconds"),
            "until": None if until is None else format_time(until, "milliseconds"),
            "attempts": attempts,
            "last_error": said.get("error"),
        }

    def _said(self, which: DeliveryKey, fate: Fate) -> dict[str, Any]:
        match fate:
            case Fate.OPEN:
                why_not = "before this handler joined" if which in self.before else "not handed off"
                if which in self.forgotten:
                    why_not = (
                        "forgotten: handed off before the ledger was wiped, and lost if it was not settled by then"
                    )
                return {"where": f"{self.topic}-{which[0]}, {why_not}"}
            case Fate.PARKED:
                return self._parked(which)
            case Fate.HANDED:
                return {"at": self.since.get(which), **self._handed(which)}
            case Fate.DEAD:
                return self._dead(which)
        return {}

    def _handed(self, which: DeliveryKey) -> dict[str, Any]:
        if (carrier := self.carriers.get(which)) is not None:
            return {
                "where": self._lies(carrier),
                "error": carrier.error or None,
                "attempts": carrier.attempts._asdict(),
                "until": carrier.due if carrier.where == "waiting" else None,
            }
        if self.silent:
            return {"where": self.silent}
        queue = self.queues.get(which[2], "its queue")
        return {
            "where": f"in no message of {queue}: just taken, or lost; handed off again {self.again:g} s after its "
            "hand-off"
        }

    def _parked(self, which: DeliveryKey) -> dict[str, Any]:
        """In a record of a retry or replay topic, or on its way from there."""
        if which not in self.parked and (carrier := self.carriers.get(which)) is not None and carrier.via is not None:
            on_its_way = self._handed(which)
            return {**on_its_way, "where": f"{on_its_way['where']} (by {carrier.via})"}
        if which not in self.parked:
            return {"where": f"in no retry topic: run just now, or lost (`bridge audit {self.topic}` tells)"}
        lies, held = self.parked[which]
        delivery = held.delivery
        by = f"{lies.place[0]}-{lies.place[1]}-{lies.offset}"
        said = {
            "at": held.failed_at / 1000 if held.failed_at else None,
            "error": delivery.error or None,
            "attempts": delivery.attempts._asdict(),
        }
        if lies.fate is Fate.HANDED:
            under_way = {name: value for name, value in self._handed(which).items() if value is not None}
            return {**said, **under_way, "where": f"{under_way['where']} (by {by})"}
        until = max(held.due / 1000, delivery.due or 0.0)
        waits = f", waits until {format_time(until, 'milliseconds')}" if until else ""
        return {**said, "where": f"{by}{waits}", "until": until or None}

    def _dead(self, which: DeliveryKey) -> dict[str, Any]:
        letter = self.letters.get(which)
        if letter is None:
            return {"where": self.dead_letters}
        attempts: dict[str, int] = {}
        if letter.attempts is not None:
            attempts = letter.attempts._asdict()
        else:
            attempts["lost" if letter.reason == "poison" else "failed"] = letter.runs
        error = f"{letter.reason}: {letter.error}"
        return {"where": letter.place, "at": letter.failed_at, "error": error, "attempts": attempts}

    def _lies(self, carrier: CarrierMessage) -> str:
        lies = _place(carrier)
        if carrier.where == "aside" and self.halted:
            lies = f"queue {carrier.queue}, set aside until the topic goes on (bridge resume {self.topic})"
        return f"{lies}; dead ({carrier.dead}), and Kafka has not taken its dead letter yet" if carrier.dead else lies


def _place(carrier: CarrierMessage) -> str:
    match carrier.where:
        case "waiting":
            until = f" until {format_time(carrier.due, 'milliseconds')}" if carrier.due else ""
            return f"queue {carrier.queue}, waits{until}"
        case "taken":
            return f"queue {carrier.queue}, taken by a worker: it runs or is next"
        case "aside":
            return f"queue {carrier.queue}, set aside until what it needs is there again (bridge status)"
    return f"queue {carrier.queue}"
