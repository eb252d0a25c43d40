"""The lanes of an approved plan: assigned when it begins, and released when the delivery ahead has ended."""

from collections.abc import Mapping, Sequence
from typing import Final

from bridge.deadletters.db import plan_counts, plan_order_rows, sql
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.db.plan_order_rows import EndedItem
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanItemState, PlanKind
from bridge.deadletters.model.plan_order import OrderedCourse, find_course, find_ordered_topics
from bridge.deadletters.model.stored_letter import LetterIdentity
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.outcome_deduction import StillParked, identify_delivery
from bridge.deadletters.replay.redrive_action import find_redriven_delivery
from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Origin
from bridge.ledger import Fate
from bridge.settings import Settings


def lay_plan_lanes(connection: Connection, plan_id: int, settings: Settings) -> None:
    """Assign the lanes of a plan that begins or is resumed, by the current order of the topics."""
    topics = find_ordered_topics(settings)
    if not topics:
        return
    found: dict[OrderedCourse, list[int]] = {}
    for kind, group, topic, handler in plan_order_rows.find_ordered_kinds(connection, topics):
        if (course := find_course(settings, group, topic, handler)) is not None:
            found.setdefault(course, []).append(kind)
    plan_order_rows.lay_lanes(connection, plan_id, found)


#: Seconds to wait for the later handlers of a sequence: a delivery that the ledger has lost must not hold its lane for
#: ever.
WAITS: Final = 3_600.0


def is_message_on_its_way(fates: Sequence[Fate], died: Sequence[bool]) -> bool:
    """Return whether a message that runs for the first time is in flight at later handlers of its sequence (pure).

    Parameters:
        fates: of its deliveries to these, in their order. After a death at an earlier handler, the later ones are dead
            too until their turn.
        died: whether each has a letter of its own.
    """
    for fate, dead in zip(fates, died, strict=True):
        if fate is not Fate.DONE:
            return fate is not Fate.DISCARDED and not (fate is Fate.DEAD and dead)
    return False


class LaneRelease:
    """The check which items of a plan no longer hold their successors."""

    def __init__(self, settings: Settings, database: Database, plan: BulkPlan, fates: LedgerFates) -> None:
        self._settings, self._database, self._plan, self._fates = settings, database, plan, fates

    def passed(self) -> list[int]:
        """Return the positions of these items.

        Raises:
            DeskUnavailable, LedgerUnavailable: a server did not answer.
            KafkaUnavailable: it did not answer, and no item is released without its answer.
        """
        with self._database.reading() as connection:
            found, now = plan_order_rows.read_ended_items(connection, self._plan.id), sql.read_clock(connection)
        later = {each.position: self._later(each) for each in found if now - each.at < 1_000 * WAITS}
        again = {each.position for each in found if self._runs_again(each)}
        held = self._on_their_way({at: some for at, some in later.items() if some and at not in again})
        running = {at: some for at, some in later.items() if some and at in again}
        try:
            held |= self._run_again(running)
        except KafkaUnavailable:
            held |= running.keys()
            if len(held) == len(found):
                raise
        return [each.position for each in found if each.position not in held]

    def _later(self, ended: EndedItem) -> list[Origin]:
        """Return the deliveries of a message after one that was done."""
        delivery = ended.delivery
        if delivery is None and self._plan.what is PlanKind.REDRIVE and ended.place:
            delivery = find_redriven_delivery(self._plan, self._settings.group, ended.place)
        # A delivery to all handlers has no place in a sequence.
        if delivery is None or ended.state != PlanItemState.DONE:
            return []
        sequence = self._settings.topic(delivery.topic).sequence
        if delivery.handler not in sequence:
            return []
        return [delivery._replace(handler=name) for name in sequence[sequence.index(delivery.handler) + 1 :]]

    def _runs_again(self, ended: EndedItem) -> bool:
        return ended.again if ended.delivery is not None else self._plan.options.again

    def _run_again(self, later: Mapping[int, list[Origin]]) -> set[int]:
        """Return those that run again and have a record that is to run.

        Their fates, and letters, may be of the run before. A later handler's record is written before the end of the
        earlier one is marked.
        """
        # Not kept: its answer would include deliveries that have run since an earlier call.
        parked = StillParked(self._settings, self._fates)
        sources = {(each.group, each.topic) for some in later.values() for each in some}
        there = {found for group, topic in sources for found in parked.find_parked(group, topic)}
        return {at for at, some in later.items() if any(identify_delivery(each) in there for each in some)}

    def _on_their_way(self, later: Mapping[int, list[Origin]]) -> set[int]:
        if not later:
            return set()
        asked = [each for some in later.values() for each in some]
        digests = [LetterIdentity.for_delivery(each).digest for each in asked]
        fates = dict(zip(asked, self._fates.read_fates(asked), strict=True))
        # In this order: a dead delivery gets its fate before its letter.
        with self._database.reading() as connection:
            known = plan_counts.find_letters_by_digest(connection, digests)
        died = {each: digest in known for each, digest in zip(asked, digests, strict=True)}
        return {
            position
            for position, some in later.items()
            if is_message_on_its_way([fates[each] for each in some], [died[each] for each in some])
        }
