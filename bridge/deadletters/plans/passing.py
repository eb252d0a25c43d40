"""Whether what stands behind a delivery in its lane may go: it has ended, and in a `sequence` its whole message has."""

from collections.abc import Sequence
from typing import Final

from bridge.deadletters.fates import Fates
from bridge.deadletters.letters.letter import Identity
from bridge.deadletters.plan.plan import ItemState, Plan, What
from bridge.deadletters.redrive.redriving import delivery_of
from bridge.deadletters.store import clock, lanes, weighing
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.lanes import Ended
from bridge.ledger import Fate
from bridge.records.origin import Origin
from bridge.settings import Settings

#: Seconds after which the later handlers of a sequence are waited for no more: what the ledger has lost would hold its
#: lane for ever.
WAITS: Final = 3_600.0


def is_on_its_way(fates: Sequence[Fate], died: Sequence[bool]) -> bool:
    """Whether a message is on its way along the later handlers of its sequence (pure).

    Parameters:
        fates: of its deliveries to these, in their order. Of a message that died at an earlier handler those are dead,
            too, until they have had their turn.
        died: whether each has a letter of its own.
    """
    for fate, dead in zip(fates, died, strict=True):
        if fate is not Fate.DONE:
            return fate is not Fate.DISCARDED and not (fate is Fate.DEAD and dead)
    return False


class Passing:
    """Looks which of a plan's deliveries hold those behind them no more."""

    def __init__(self, settings: Settings, database: Database, plan: Plan, fates: Fates) -> None:
        self._settings, self._database, self._plan, self._fates = settings, database, plan, fates

    def passed(self) -> list[int]:
        """Their positions.

        Raises:
            DeskUnavailable, LedgerUnavailable: it is not known.
        """
        with self._database.reading() as connection:
            found, now = lanes.ended(connection, self._plan.id), clock.now(connection)
        later = {each.position: self._later(each) for each in found if now - each.at < 1_000 * WAITS}
        held = self._on_their_way({position: some for position, some in later.items() if some})
        return [each.position for each in found if each.position not in held]

    def _later(self, ended: Ended) -> list[Origin]:
        """The deliveries of a message that come after one that was done."""
        delivery = ended.delivery
        if delivery is None and self._plan.what is What.REDRIVE and ended.place:
            delivery = delivery_of(self._plan, self._settings.group, ended.place)
        # What goes to all handlers has no place in a sequence.
        if delivery is None or ended.state != ItemState.DONE:
            return []
        sequence = self._settings.topic(delivery.topic).sequence
        if delivery.handler not in sequence:
            return []
        return [delivery._replace(handler=name) for name in sequence[sequence.index(delivery.handler) + 1 :]]

    def _on_their_way(self, later: dict[int, list[Origin]]) -> set[int]:
        if not later:
            return set()
        asked = [each for some in later.values() for each in some]
        digests = [Identity(each.group, *each[:5]).digest for each in asked]
        fates = dict(zip(asked, self._fates.of(asked), strict=True))
        # In this order: who died has the fate before the letter.
        with self._database.reading() as connection:
            known = weighing.by_digest(connection, digests)
        died = {each: digest in known for each, digest in zip(asked, digests, strict=True)}
        return {
            position
            for position, some in later.items()
            if is_on_its_way([fates[each] for each in some], [died[each] for each in some])
        }
