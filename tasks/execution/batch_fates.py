"""The fates of a batch in the ledger, as a worker reads and marks them; marks are gathered for a few milliseconds."""

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from celery import Celery

from bridge import settings
from bridge.errors import LedgerUnavailable
from bridge.formats.delivery import Batch, Delivery, Message
from bridge.kafka.topic_names import TopicNames
from bridge.ledger import RETRY_RECORD, Account, Fate, Ledger, Mark, is_to_skip
from bridge.ledger.fate_rules import SETTLED, choose_offsets
from bridge.ledger.handoff_times import note_waiting_retries
from bridge.ledger.ledger_hook import read_found_fate
from bridge.ledger.ledger_scripts import LeaseEnd, NameMark
from bridge.ledger.task_notes import TaskNote
from bridge.settings import Settings
from lossless.transport.script_hook import LOOKED
from lossless.worker.acknowledgement_bundle import BundledStep, bundle_step
from tasks import logs
from tasks.worker.ledger_telemetry import carrier_notes

logger = logs.harmless_logger(__name__)

#: Seconds that a mark may wait for others; deliveries done since the last marks of a killed process run again.
MARK_WITHIN: Final = 0.005
#: Seconds for which a fate that the script hook read is valid; a later start reads it again.
LOOK_HOLDS: Final = 1.0
#: Seconds within which a mark bundled with an acknowledgement is made, unless there is an outage.
BUNDLED_WITHIN: Final = 2.0
#: Seconds for which marks are repeated before they travel with the message.
MARK_FOR: Final = 5.0
#: Seconds between two attempts to write marks.
MARK_EVERY: Final = 0.5
#: Fates after which the next delivery in an order may run.
FINAL_FATES: Final = frozenset({Fate.DONE, Fate.DEAD, Fate.DISCARDED, Fate.GAP})


class BatchFates:
    """The fates of one batch.

    Parameters:
        ledger: `None` without a Redis for it: nothing is read or marked.
        other_names: further names of the handler: a delivery settled under one of them is settled.
        replay_topic: the topic of replayed deliveries, which run although they are dead.
        holds_dead: whether a dead delivery holds those behind it in its order.

    A delivery from a retry or replay topic has two fates: that of its record there and that of its source record. It is
    settled if either is; both are marked in one step.
    """

    _ledgers: ClassVar[dict[tuple[int, str, str], tuple[Ledger | None, TopicNames, Settings]]] = {}
    #: Deliveries whose mark was bundled here, the oldest in front, and when: the mark may be in flight.
    _bundled: ClassVar[dict[tuple[Account, int], float]] = {}

    def __init__(
        self,
        ledger: Ledger | None,
        batch: Batch,
        other_names: Sequence[str] = (),
        replay_topic: str = "",
        holds_dead: bool = False,
    ) -> None:
        self._ledger = ledger
        self.holds_dead = holds_dead
        replays = batch.via is not None and batch.via.topic == replay_topic
        self._retried = (
            set()
            if batch.via is None
            else {delivery.message.offset for delivery in batch.deliveries if delivery.retried(replays=replays)}
        )
        self._again = {delivery.message.offset for delivery in batch.deliveries if delivery.again}
        self._account = Account(batch.handler, batch.topic, batch.topic_id, batch.partition)
        self._others = [Account(name, batch.topic, batch.topic_id, batch.partition) for name in other_names]
        #: The account and the offsets of the retry or replay records, which have fates of their own.
        self._own = (
            None
            if batch.via is None
            else Account(RETRY_RECORD, batch.via.topic, batch.via.topic_id, batch.via.partition)
        )
        self._own_offsets = {
            delivery.message.offset: delivery.via.offset for delivery in batch.deliveries if delivery.via is not None
        }
        self._unwritten: dict[int, Fate] = {}
        #: Offsets that `settled` found discarded: a person gave them up, and they never ran to their end.
        self.discarded: set[int] = set()
        #: The unique names of deliveries by their offsets, which are done with them.
        self.names: dict[int, NameMark] = {}
        #: The leases of a limit that end with the marks of their deliveries.
        self.leases: dict[int, LeaseEnd] = {}
        self._writing = threading.Lock()
        #: Seconds for which marks are repeated while the ledger does not answer.
        self._patience = MARK_FOR
        self._marked_at = time.monotonic()

    @classmethod
    def for_batch(cls, app: Celery, batch: Batch) -> "BatchFates":
        """Return the fates of a batch, in the ledger of the group that handed it off."""
        # A connection must not be shared with the process that this one was forked from.
        key = (os.getpid(), batch.cluster, batch.group)
        if key not in cls._ledgers:
            chosen = settings.load(app, os.environ).of_group(batch.group)
            made = Ledger.from_settings(chosen, batch.cluster) if batch.group else None
            cls._ledgers[key] = (made, TopicNames.from_settings(chosen), chosen)
        ledger, names, chosen = cls._ledgers[key]
        other_names = getattr(app.tasks.get(batch.handler), "other_names", ())
        holds_dead = batch.order is not None and chosen.topic(batch.topic).holds_dead
        return cls(ledger, batch, other_names, names.replay(batch.topic), holds_dead)

    @property
    def ledger(self) -> Ledger | None:
        """The ledger; `None` without a Redis for it."""
        return self._ledger

    @property
    def accounts(self) -> tuple[Account, ...]:
        """The accounts of the source records under each name of the handler."""
        return (self._account, *self._others)

    @property
    def unwritten(self) -> dict[int, Fate]:
        """The marks that are not in the ledger yet."""
        return self._unwritten

    def settled(self, offsets: Sequence[int]) -> set[int]:
        """Return those of these offsets (ascending) that are settled: they are not run again.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        if self._ledger is None:
            return set()
        in_flight = [offset for offset in offsets if self._is_in_flight(offset)] if self._bundled else []
        settled, elsewhere = self._looked_up(self._ledger, offsets)
        for offset, fate in elsewhere.items():
            if offset not in settled:
                # The bridge reads the fate of the record that it handed off.
                self._unwritten[offset] = fate
                settled.add(offset)
                if fate is Fate.DISCARDED:
                    self.discarded.add(offset)
        for offset in in_flight:
            if offset not in settled:
                self._unwritten[offset] = Fate.DONE
                settled.add(offset)
        self.flush()
        return settled

    def is_discarded(self, offset: int) -> bool:
        """Return whether a person has discarded a delivery while it ran; false if that is unknown.

        What came by a retry topic is not asked for: `bridge discard` leaves it alone.
        """
        if self._ledger is None or self._own is not None:
            return False
        try:
            found = self._ledger.fates_of([(account, [offset]) for account in self.accounts])
        except LedgerUnavailable:
            return False
        return any(fates[0] == Fate.DISCARDED for fates in found)

    def _looked_up(self, ledger: Ledger, offsets: Sequence[int]) -> tuple[set[int], dict[int, Fate]]:
        """Return the offsets settled where they were handed off, and the fates of those settled elsewhere."""
        names = self.accounts
        if self._own is None:
            here, *others = ledger.fates_of([(account, offsets) for account in names])
            self.discarded.update(choose_offsets(offsets, here, {Fate.DISCARDED}))
            return choose_offsets(offsets, here, SETTLED), {
                offset: Fate(fate)
                for fates in others
                for offset, fate in zip(offsets, fates, strict=True)
                if is_to_skip(Fate(fate))
            }
        own_offsets = sorted(self._own_offsets[offset] for offset in offsets)
        own, *origins = ledger.fates_of([(self._own, own_offsets), *((account, offsets) for account in names)])
        own_fates = {offset: Fate(fate) for offset, fate in zip(own_offsets, own, strict=True)}
        self.discarded.update(at for at in offsets if own_fates[self._own_offsets[at]] is Fate.DISCARDED)
        return {offset for offset in offsets if is_to_skip(own_fates[self._own_offsets[offset]])}, {
            offset: Fate(fate)
            for fates in origins
            for offset, fate in zip(offsets, fates, strict=True)
            if is_to_skip(Fate.OPEN, Fate(fate), retried=offset in self._retried, again=offset in self._again)
        }

    def find_finished(self, offsets: Sequence[int]) -> set[int]:
        """Return those of these offsets (ascending) after which the next delivery in their order may run.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        if self._ledger is None:
            return set(offsets)
        final = FINAL_FATES - {Fate.DEAD} if self.holds_dead else FINAL_FATES
        found = self._ledger.fates_of([(account, offsets) for account in self.accounts])
        finished = {
            offset for fates in found for offset, fate in zip(offsets, fates, strict=True) if Fate(fate) in final
        }
        # A delivery may wait for its halted handler longer than the ledger keeps the fate of the one before it.
        still_open = [offset for offset, *fates in zip(offsets, *found, strict=True) if not any(fates)]
        return finished.union(*(self._ledger.find_expired(account, still_open) for account in self.accounts))

    def find_holding(self, deliveries: Iterable[Delivery], left: Iterable[Delivery]) -> list[Delivery]:
        """Return the deliveries that have ended, and after which the next in their order must not run yet.

        Parameters:
            left: those that have not ended.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        offsets = {delivery.message.offset for delivery in left}
        ended = [delivery for delivery in deliveries if delivery.message.offset not in offsets]
        if not (self.holds_dead and ended):
            return []
        finished = self.find_finished(sorted(delivery.message.offset for delivery in ended))
        return [delivery for delivery in ended if delivery.message.offset not in finished]

    def _is_in_flight(self, offset: int) -> bool:
        """Return whether a delivery was done here a moment ago, and its bundled mark may not be in Redis yet."""
        at = None if offset in self._again else self._bundled.get((self._account, offset))
        return at is not None and time.monotonic() - at < BUNDLED_WITHIN

    def _note_bundled(self, offset: int) -> None:
        now = time.monotonic()
        self._bundled.pop((self._account, offset), None)
        self._bundled[self._account, offset] = now
        while now - self._bundled[oldest := next(iter(self._bundled))] > BUNDLED_WITHIN:
            del self._bundled[oldest]

    def find_wipe(self, message: Message) -> float | None:
        """Return when the ledger may have lost this message's fate (Unix time): its Redis was wiped or restarted after
        the record was produced. `None` if it was not.
        """
        if self._ledger is None:
            return None
        try:
            since = self._ledger.since()
        except LedgerUnavailable:
            return time.time()
        return since if message.timestamp is None or message.timestamp < since * 1000 else None

    def note_task(self, task_id: str, offsets: Sequence[int]) -> None:
        """Note, for `bridge find` only, that these offsets (ascending) have ended in this task."""
        if self._ledger is not None and offsets:
            carrier_notes.add(self._ledger, TaskNote(task_id, self._account, offsets))

    def note_single_task(self, offset: int) -> None:
        """Note, for `bridge find` only, that a delivery has ended in a task of its own."""
        if self._ledger is not None:
            carrier_notes.add_alone(self._ledger, self._account, offset)

    def note_waiting(self, offsets: Sequence[int], due: float) -> None:
        """Note, for `bridge status` and `bridge find` only, that deliveries wait for their retry until `due`."""
        if self._ledger is None:
            return
        try:
            note_waiting_retries(self._ledger, self._account, offsets, due)
        except LedgerUnavailable as error:
            logger.debug("%s", error)

    def open_when_taken(self, offset: int, properties: Mapping[str, Any]) -> bool:
        """Return whether a delivery was unsettled when its message was taken a moment ago.

        Parameters:
            properties: of the message. False if they do not hold the fate, or were read too long ago.
        """
        at, found = properties.get(LOOKED) or (0.0, "")
        if self._others or time.monotonic() - at > LOOK_HOLDS:
            return False
        fate = read_found_fate(found, offset)
        return fate is not None and not is_to_skip(fate)

    def bundle_done(self, offset: int) -> bool:
        """Bundle the mark "done" of a delivery with the acknowledgement of its message, which follows.

        Returns:
            whether the mark is bundled; if not, the caller marks.
        """
        if self._ledger is None:
            return False
        call = self._ledger.call([Mark(self._account, [offset], Fate.DONE), *self._find_beside([offset])])
        lease = self.leases.get(offset)

        def mark_apart() -> None:
            if lease is not None:
                self.leases[offset] = lease
            self.mark(offset, Fate.DONE)

        bundled = bundle_step(BundledStep(call.keys, call.args), mark_apart)
        if bundled:
            self._note_bundled(offset)
            self.leases.pop(offset, None)
        return bundled

    def done(self, offset: int, *, now: bool = False) -> None:
        """Mark a delivery done, within milliseconds or, with `now`, at once.

        Raises:
            LedgerUnavailable: as `flush`.
        """
        self._unwritten[offset] = Fate.DONE
        if now or self.leases or time.monotonic() - self._marked_at >= MARK_WITHIN:
            self.flush()

    def mark(self, offset: int, fate: Fate) -> None:
        """Mark a delivery, at once.

        Raises:
            LedgerUnavailable: as `flush`.
        """
        self.mark_all([offset], fate)

    def mark_all(self, offsets: Iterable[int], fate: Fate) -> None:
        """Mark deliveries, at once and in one step.

        Raises:
            LedgerUnavailable: as `flush`.
        """
        self._unwritten.update(dict.fromkeys(offsets, fate))
        self.flush()

    def give_up_ledger(self) -> None:
        """Wait no more for a ledger that did not answer: marks are tried once."""
        self._patience = 0.0

    def flush(self, patience: float | None = None) -> None:
        """Write the pending marks.

        Parameters:
            patience: seconds for which an unavailable ledger is tried again; `None`: `MARK_FOR`.

        Raises:
            LedgerUnavailable: the ledger was unavailable for so long; the marks are kept in `unwritten`.
        """
        give_up = time.monotonic() + (self._patience if patience is None else patience)
        while self._unwritten:
            try:
                with self._writing:
                    self._write()
            except LedgerUnavailable as error:
                if time.monotonic() > give_up:
                    raise
                logger.warning("fates could not be marked, again in %g s: %s", MARK_EVERY, error)
                time.sleep(MARK_EVERY)
        self._marked_at = time.monotonic()

    def _find_beside(self, offsets: Iterable[int]) -> Sequence[NameMark | LeaseEnd]:
        """Return what is written beside the marks of deliveries that are done: their unique names, and their leases."""
        if not (self.names or self.leases):
            return ()
        return [each[offset] for offset in offsets for each in (self.names, self.leases) if offset in each]

    def _write(self) -> None:
        fates = dict(self._unwritten)
        if self._ledger is not None:
            by_fate: dict[Fate, list[int]] = {}
            for offset in sorted(fates):
                by_fate.setdefault(fates[offset], []).append(offset)
            marks = [Mark(self._account, offsets, fate) for fate, offsets in by_fate.items()]
            if self._own is not None:
                # In one step. A replayed delivery that was done before has its new fate only here.
                own, places = self._own, self._own_offsets
                marks += [Mark(own, sorted(places[at] for at in offsets), fate) for fate, offsets in by_fate.items()]
            self._ledger.write([*marks, *self._find_beside(by_fate.get(Fate.DONE, ()))])
        for offset in fates:
            self._unwritten.pop(offset, None)
            self.leases.pop(offset, None)
