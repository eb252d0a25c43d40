"""The location of one delivery, as `bridge find` says it: a queue, a retry topic, a dead-letter topic (pure)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from bridge.dispatch.carrier_message import CarrierMessage, DeliveryKey
from bridge.formats.dead_letter_record import DeadLetterSummary
from bridge.formats.retry_record import RetryRecord
from bridge.formats.text_forms import format_time
from bridge.ledger import Fate
from bridge.ledger.unsettled_retry_records import UnsettledRecord


@dataclass(frozen=True)
class DeliveryLocator:
    """The locations of some deliveries of one topic.

    Attributes:
        dead_letters: the name of the dead-letter topic.
        again: seconds after which a delivery that is in no message is handed off again (`kafka_stuck_after`).
        since: by delivery in flight, about when it was handed off.
        before: deliveries whose records are older than their handler.
        forgotten: deliveries that were committed with a ledger that was wiped since.
        halted: whether the topic is halted.
        carriers: by delivery, the Celery message that carries it.
        silent: why the messages are not known; `None`: they are.
        parked: by delivery, its record in a retry or replay topic, and what that holds.
        queues: by handler, its queue.
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

    def locate(self, which: DeliveryKey, fate: Fate) -> dict[str, Any]:
        """Return the location of a delivery as JSON-able data."""
        location = self._locate(which, fate)
        attempts = dict.fromkeys(("failed", "lost", "postponed", "replayed")) | location.pop("attempts", {})
        at, until = location.pop("at", None), location.pop("until", None)
        return {
            "handler": which[2],
            "fate": fate.name.lower(),
            "where": location.get("where"),
            "since": None if at is None else format_time(at, "seconds" if fate is Fate.HANDED else "milliseconds"),
            "until": None if until is None else format_time(until, "milliseconds"),
            "attempts": attempts,
            "last_error": location.get("error"),
        }

    def _locate(self, which: DeliveryKey, fate: Fate) -> dict[str, Any]:
        match fate:
            case Fate.OPEN:
                why_not = "before this handler joined" if which in self.before else "not handed off"
                if which in self.forgotten:
                    why_not = "forgotten: handed off before the ledger was wiped, and lost unless it was settled before"
                return {"where": f"{self.topic}-{which[0]}, {why_not}"}
            case Fate.PARKED:
                return self._locate_parked(which)
            case Fate.HANDED:
                return {"at": self.since.get(which), **self._locate_handed(which)}
            case Fate.DEAD:
                return self._locate_dead(which)
        return {}

    def _locate_handed(self, which: DeliveryKey) -> dict[str, Any]:
        if (carrier := self.carriers.get(which)) is not None:
            return {
                "where": self._describe_carrier(carrier),
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

    def _locate_parked(self, which: DeliveryKey) -> dict[str, Any]:
        """Return the location of a parked delivery: a record of a retry or replay topic, or a message made from one."""
        if which not in self.parked and (carrier := self.carriers.get(which)) is not None and carrier.via is not None:
            in_flight = self._locate_handed(which)
            return {**in_flight, "where": f"{in_flight['where']} (by {carrier.via})"}
        if which not in self.parked:
            return {"where": f"in no retry topic: run just now, or lost (`bridge audit {self.topic}` tells which)"}
        record, held = self.parked[which]
        delivery = held.delivery
        by = f"{record.place[0]}-{record.place[1]}-{record.offset}"
        location = {
            "at": held.failed_at / 1000 if held.failed_at else None,
            "error": delivery.error or None,
            "attempts": delivery.attempts._asdict(),
        }
        if record.fate is Fate.HANDED:
            in_flight = {name: value for name, value in self._locate_handed(which).items() if value is not None}
            return {**location, **in_flight, "where": f"{in_flight['where']} (by {by})"}
        until = max(held.due / 1000, delivery.due or 0.0)
        waits = f", waits until {format_time(until, 'milliseconds')}" if until else ""
        return {**location, "where": f"{by}{waits}", "until": until or None}

    def _locate_dead(self, which: DeliveryKey) -> dict[str, Any]:
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

    def _describe_carrier(self, carrier: CarrierMessage) -> str:
        place = _describe_place(carrier)
        if carrier.where == "aside" and self.halted:
            place = f"queue {carrier.queue}, set aside until the topic is resumed (bridge resume {self.topic})"
        return f"{place}; dead ({carrier.dead}), and Kafka has not taken its dead letter yet" if carrier.dead else place


def _describe_place(carrier: CarrierMessage) -> str:
    match carrier.where:
        case "waiting":
            until = f" until {format_time(carrier.due, 'milliseconds')}" if carrier.due else ""
            return f"queue {carrier.queue}, waits{until}"
        case "taken":
            return f"queue {carrier.queue}, taken by a worker: it runs or is next"
        case "aside":
            return f"queue {carrier.queue}, set aside until its dependency works again (bridge status)"
    return f"queue {carrier.queue}"
