"""The reasons why a plan leaves a delivery out: another plan has it in flight or changed its letter, or the delivery
has a letter of its own. Two records of one delivery could run at the same time.
"""

from collections.abc import Iterable, Mapping

from bridge.deadletters.db import plan_counts, plan_table, redrive_table
from bridge.deadletters.db.database import Connection
from bridge.deadletters.db.letter_payload import LetterStanding
from bridge.deadletters.db.plan_counts import DeadDelivery
from bridge.deadletters.db.redrive_table import DeliveryElsewhere
from bridge.deadletters.model.stored_letter import LetterIdentity, LetterStatus
from bridge.formats.delivery_identity import Origin


def find_plan_makers(connection: Connection, letters: Iterable[LetterStanding]) -> Mapping[int, str]:
    """Return the makers of the plans that have non-open letters, by plan id."""
    ids = {each.plan_id for each in letters if each.status is not LetterStatus.OPEN and each.plan_id is not None}
    return plan_table.read_plan_makers(connection, ids)


def explain_lateness(letter: LetterStanding, by: Mapping[int, str]) -> str:
    """Return why a letter that is not open cannot be taken (pure).

    Parameters:
        by: the makers of plans by id (`find_plan_makers`).
    """
    said = "it is replaying already" if letter.status is LetterStatus.REPLAYING else f"it is {letter.status} by now"
    if letter.plan_id is None:
        return said
    who = f" of {by[letter.plan_id]}" if letter.plan_id in by else ""
    return f"{said}, by plan {letter.plan_id}{who}"


class PlanConflicts:
    """The conflicts of a plan, in a transaction in which no other plan claims (`lock_claims`).

    Parameters:
        elsewhere: by place, the deliveries that other plans have in flight.
        letters: by digest, the letters of deliveries that are sent as no letter's own.
    """

    def __init__(self, elsewhere: Mapping[str, DeliveryElsewhere], letters: Mapping[bytes, DeadDelivery]) -> None:
        self._elsewhere, self._letters = elsewhere, letters

    @classmethod
    def of(
        cls, connection: Connection, plan_id: int, own: Iterable[Origin] = (), others: Iterable[Origin] = ()
    ) -> "PlanConflicts":
        """Return the conflicts of deliveries.

        Parameters:
            own: deliveries that are sent as their letters.
            others: deliveries that are sent as no letter's own.
        """
        own, others = [*own], [*others]
        found = redrive_table.find_deliveries_elsewhere(
            connection, plan_id, [each.identity for each in (*own, *others)]
        )
        return cls(
            found,
            plan_counts.find_letters_by_digest(connection, [LetterIdentity.of(each).digest for each in others])
            if others
            else {},
        )

    def of_own(self, delivery: Origin, died: int) -> str:
        """Return why a letter's own delivery is left out; empty if it is sent (pure).

        Parameters:
            died: its number when it died last.
        """
        other = self._elsewhere.get(delivery.identity)
        return "" if other is None or other.before(died) else _explain_in_flight(other)

    def of_other(self, delivery: Origin) -> str:
        """Return why a delivery that is no letter's own is left out; empty if it is sent (pure)."""
        if (other := self._elsewhere.get(delivery.identity)) is not None:
            return _explain_in_flight(other)
        letter = self._letters.get(LetterIdentity.of(delivery).digest)
        return (
            "" if letter is None or letter.status is not LetterStatus.REPLAYING else f"letter {letter.id} is replaying"
        )

    def letter(self, delivery: Origin) -> DeadDelivery | None:
        """Return the open letter of such a delivery; `None` if it has none (pure)."""
        letter = self._letters.get(LetterIdentity.of(delivery).digest)
        return letter if letter is not None and letter.status is LetterStatus.OPEN else None


def _explain_in_flight(other: DeliveryElsewhere) -> str:
    return f"plan {other.plan_id} has it in flight"
