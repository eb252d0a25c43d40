"""What came before a plan since it was made: another plan has the delivery under way, or it has a letter of its own.

Two records of one delivery could run at the same time: while one is parked, the other is handed off.
"""

from collections.abc import Iterable, Mapping

from bridge.deadletters.letters.letter import Identity, Status
from bridge.deadletters.store import underway, weighing
from bridge.deadletters.store.database import Connection
from bridge.deadletters.store.underway import Elsewhere
from bridge.deadletters.store.weighing import Died
from bridge.records.origin import Origin


class Ahead:
    """Why deliveries are left out of a plan, in whose transaction no other claims (store.underway.alone).

    Parameters:
        elsewhere: by place, what other plans have under way.
        letters: by digest, the letters of deliveries that go out as no letter's own.
    """

    def __init__(self, elsewhere: Mapping[str, Elsewhere], letters: Mapping[bytes, Died]) -> None:
        self._elsewhere, self._letters = elsewhere, letters

    @classmethod
    def of(
        cls, connection: Connection, plan_id: int, own: Iterable[Origin] = (), others: Iterable[Origin] = ()
    ) -> "Ahead":
        """What there is of these.

        Parameters:
            own: go out as their letters.
            others: go out as no letter's own.
        """
        own, others = [*own], [*others]
        found = underway.elsewhere(connection, plan_id, [each.identity for each in (*own, *others)])
        return cls(found, weighing.by_digest(connection, map(_digest, others)) if others else {})

    def of_own(self, delivery: Origin, died: int) -> str:
        """Why a letter's own is left out; empty: it goes (pure).

        Parameters:
            died: the number under which it died last.
        """
        other = self._elsewhere.get(delivery.identity)
        return "" if other is None or other.before(died) else _under_way(other)

    def of_other(self, delivery: Origin) -> str:
        """Why one that goes out as no letter's own is left out; empty: it goes (pure)."""
        if (other := self._elsewhere.get(delivery.identity)) is not None:
            return _under_way(other)
        letter = self._letters.get(_digest(delivery))
        return "" if letter is None or letter.status is not Status.REPLAYING else f"letter {letter.id} is replaying"

    def letter(self, delivery: Origin) -> Died | None:
        """The open letter that one has which goes out as no letter's own; `None`: it has none (pure)."""
        letter = self._letters.get(_digest(delivery))
        return letter if letter is not None and letter.status is Status.OPEN else None


def _under_way(other: Elsewhere) -> str:
    return f"plan {other.plan_id} has it under way"


def _digest(delivery: Origin) -> bytes:
    return Identity(delivery.group, *delivery[:5]).digest
