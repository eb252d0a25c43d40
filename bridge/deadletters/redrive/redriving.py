"""A plan redrives: records of a source topic go to its replay topic again, each for one handler.

What is a dead letter here goes as that, by `sending`; the rest has no row of its own, and its record is read from the
source.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from bridge.deadletters.actions.action import Acted, Claimed, End, Live, Taken
from bridge.deadletters.actions.ahead import Ahead
from bridge.deadletters.actions.ends import Ends
from bridge.deadletters.actions.sending import Sending, target_of
from bridge.deadletters.actions.traces import LOST, traces
from bridge.deadletters.fates import Fates
from bridge.deadletters.plan.plan import ItemState, Plan
from bridge.deadletters.redrive.standing import left_out
from bridge.deadletters.store import items
from bridge.deadletters.store.database import Connection
from bridge.deadletters.store.items import Item
from bridge.deadletters.store.spots import Sent, Spot
from bridge.errors import NeverPublished
from bridge.kafka import Record, headers_of
from bridge.ledger import Fate
from bridge.records.naming import work_of
from bridge.records.origin import Origin
from bridge.records.parked import whose
from bridge.records.replayed import replayed
from bridge.settings import Settings
from bridge.topics.picking import Picking
from bridge.topics.producer import AcknowledgedProducer, Letter, Lies

#: Bytes of values that are held at once.
AT_ONCE: Final = 16_000_000


class Redriven(NamedTuple):
    """A delivery of a record that is sent again."""

    item: Item
    delivery: Origin


class Redriving:
    """What a redrive does.

    Parameters:
        letters: sends those that are dead letters here.
        logs: of the topic as it is now, by partition the id of its log.
    """

    def __init__(
        self,
        settings: Settings,
        plan: Plan,
        ends: Ends,
        letters: Sending,
        fates: Fates,
        picking: Picking,
        logs: Mapping[int, str],
    ) -> None:
        self._settings, self._plan, self._ends, self._of_letters = settings, plan, ends, letters
        self._topic = str(plan.asked["topic"])
        self._target = target_of(settings, settings.group, self._topic, ours=True)
        self._fates, self._picking, self._logs = fates, picking, logs
        self._again = plan.name if plan.options.again else ""
        self._producer = AcknowledgedProducer(settings)

    def take(self, connection: Connection, waiting: Sequence[Item], at: int) -> Taken:
        """Letters as a replay takes them; all else, unless another plan has it, or its topic was made again since."""
        others = [self._redriven(item) for item in waiting if not item.letter_id]
        ahead = Ahead.of(connection, self._plan.id, others=[each.delivery for each in others])
        become = {each.item.position: item for each, item in self._as_letters(others, ahead)}
        items.become(connection, self._plan.id, [*become.values()])
        letters = [item for item in waiting if item.letter_id] + [*become.values()]
        of_letters = self._of_letters.take(connection, letters, at)
        claimed, skipped = [*of_letters.claimed], dict(of_letters.skipped)
        for each in (each for each in others if each.item.position not in become):
            spot = self._ends.spot(self._target, each.delivery.partition)
            if each.delivery.topic_id != self._logs.get(each.delivery.partition):
                skipped[each.item.position] = "its topic's log is another one by now: another record lies there"
            elif spot is None:
                skipped[each.item.position] = f"there is no topic {self._target}"
            elif why := ahead.of_other(each.delivery):
                skipped[each.item.position] = why
            else:
                claimed.append(Claimed(each.item, spot))
        return Taken(claimed, skipped)

    def look(self, claimed: Sequence[Claimed]) -> Acted:
        """Find those of which the record is there, and those of which nobody can tell any more."""
        of_letters, others = _apart(claimed)
        found = self._of_letters.look(of_letters) if of_letters else Acted()
        read, lost = traces(self._settings, others)
        sent = [*self._there(others, read)]
        lost -= {each.position for each in sent}
        left = [self._redriven(each.item) for each in others if each.item.position in lost]
        # What is known to be done is left out, as ever.
        done = [] if self._again else self._done(left)
        unknown = {each.item.position: End(ItemState.UNKNOWN, LOST) for each in left if each not in done}
        return Acted([*found.sent, *sent], {**found.ends, **unknown})

    def act(self, claimed: Sequence[Claimed], live: Live) -> Acted:
        """Publish all, and wait for all acknowledgements; what Kafka may have or not is in no answer."""
        of_letters, others = _apart(claimed)
        found = self._of_letters.act(of_letters, live) if of_letters else Acted()
        sent, ends = [*found.sent], dict(found.ends)
        redriven = [self._redriven(claim.item) for claim in others]
        left = {each.item.position: End(ItemState.SKIPPED, why) for each, why in self._left_out(redriven)}
        ends |= left
        wanted: dict[tuple[int, int], list[Redriven]] = {}
        for each in (each for each in redriven if each.item.position not in left):
            wanted.setdefault((each.delivery.partition, each.delivery.offset), []).append(each)
        gone = set(wanted)
        for some in self._slices(wanted, live):
            gone -= {(record.partition() or 0, record.offset() or 0) for record, _ in some}
            live()
            self._publish(some, sent, ends)
        refused = End(ItemState.REFUSED, "Kafka has its record no more")
        return Acted(sent, ends | {each.item.position: refused for place in gone for each in wanted[place]})

    def settle(self, connection: Connection, claimed: Sequence[Claimed], acted: Acted, at: int) -> None:
        """As a replay does with its letters; of the others there is nothing to note."""
        self._of_letters.settle(connection, _apart(claimed)[0], acted, at)

    def _as_letters(self, others: Sequence[Redriven], ahead: Ahead) -> Iterator[tuple[Redriven, Item]]:
        """Those that have an open letter, recorded since the plan was made, and each as that."""
        found = [(each, letter) for each in others if (letter := ahead.letter(each.delivery)) is not None]
        # What is to run again though it is done, a replay of its letter would leave.
        done = {*self._done([each for each, letter in found if self._again and not letter.again])}
        for each, letter in found:
            if each not in done:
                yield each, each.item._replace(letter_id=letter.id, place=None, failures=letter.failures)

    def _left_out(self, redriven: Sequence[Redriven]) -> Iterator[tuple[Redriven, str]]:
        """Those that are on their way, or over, since the plan was made; and why they are not sent."""
        for each, fate in self._with_fates(redriven):
            if why := left_out(fate, again=self._plan.options.again):
                yield each, why

    def _redriven(self, item: Item) -> Redriven:
        return Redriven(item, delivery_of(self._plan, self._settings.group, item.place or ""))

    def _done(self, redriven: Sequence[Redriven]) -> list[Redriven]:
        return [each for each, fate in self._with_fates(redriven) if fate is Fate.DONE]

    def _with_fates(self, redriven: Sequence[Redriven]) -> Iterator[tuple[Redriven, Fate]]:
        fates = self._fates.of([each.delivery for each in redriven]) if redriven else []
        return zip(redriven, fates, strict=True)

    def _there(self, claimed: Sequence[Claimed], read: Iterable[Record]) -> Iterator[Sent]:
        marks = {self._mark(self._redriven(each.item).delivery): each for each in claimed}
        for record in read:
            if (found := marks.pop(whose(record) or ("", "", 0), None)) is not None:
                spot = Spot(record.topic() or "", record.partition() or 0, record.offset() or 0)
                yield self._sent(found.item, spot)

    def _mark(self, delivery: Origin) -> tuple[str, str, int]:
        """By what its record is told from all others (bridge.records.parked.whose)."""
        return work_of(delivery.identity, self._again), delivery.group, self._plan.number

    def _slices(
        self, wanted: Mapping[tuple[int, int], list[Redriven]], live: Live
    ) -> Iterator[list[tuple[Record, list[Redriven]]]]:
        """The records, in parts of which each may be held at once."""
        offsets: dict[int, list[int]] = {}
        for partition, offset in sorted(wanted):
            offsets.setdefault(partition, []).append(offset)
        some: list[tuple[Record, list[Redriven]]] = []
        size = 0
        for record in self._picking.records(offsets, live) if offsets else ():
            some.append((record, wanted[record.partition() or 0, record.offset() or 0]))
            size += len(record.value() or b"")
            if size >= AT_ONCE:
                yield some
                some, size = [], 0
        if some:
            yield some

    def _publish(self, some: Sequence[tuple[Record, list[Redriven]]], sent: list[Sent], ends: dict[int, End]) -> None:
        jobs = [(record, each) for record, deliveries in some for each in deliveries]
        answers = self._producer.place_all([self._letter(record, each) for record, each in jobs])
        for (_, each), answer in zip(jobs, answers, strict=True):
            if isinstance(answer, Lies):
                sent.append(self._sent(each.item, Spot(*answer)))
            elif isinstance(answer, NeverPublished):
                ends[each.item.position] = End(ItemState.REFUSED, str(answer))

    def _letter(self, record: Record, redriven: Redriven) -> Letter:
        """What is written."""
        kind, timestamp = record.timestamp()
        delivery = redriven.delivery
        headers = replayed(
            delivery,
            headers_of(record),
            timestamp=timestamp if kind else None,
            number=self._plan.number - 1,
            again=self._again,
            once=self._of_letters.once(redriven.item),
        )
        spot = self._ends.spot(self._target, delivery.partition)
        partition = -1 if spot is None else spot.partition
        return Letter(self._target, partition, record.key(), record.value(), headers, delivery.identity, "its redrive")

    def _sent(self, item: Item, spot: Spot) -> Sent:
        self._ends.passed(spot)
        return Sent(item.position, self._plan.number, spot)


def delivery_of(plan: Plan, group: str, place: str) -> Origin:
    """Whose delivery a redrive has at a place, `orders-3-1234:orders.handlers.charge` (pure)."""
    coordinates, _, handler = place.partition(":")
    _, partition, offset = coordinates.rsplit("-", 2)
    return Origin(
        plan.asked["topic"], plan.options.logs.get(partition, ""), int(partition), int(offset), handler, group
    )


def _apart(claimed: Sequence[Claimed]) -> tuple[list[Claimed], list[Claimed]]:
    """Those that are letters, and the others."""
    return [each for each in claimed if each.item.letter_id], [each for each in claimed if not each.item.letter_id]
