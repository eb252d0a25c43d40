"""The fates of a batch in the ledger, as a worker reads and marks them; marks wait a few milliseconds for others."""

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from celery import Celery

from bridge import settings
from bridge.errors import LedgerUnavailable
from bridge.formats.delivery import Batch, Message
from bridge.kafka.topic_names import TopicNames
from bridge.ledger import RETRY_RECORD, Account, Fate, Ledger, Mark, is_to_skip
from bridge.ledger.handoff_times import note_waiting_retries
from bridge.ledger.ledger_hook import read_found_fate
from bridge.ledger.task_notes import TaskNote
from lossless.transport.script_hook import LOOKED
from lossless.worker.acknowledgement_bundle import BundledStep, bundle_step
from tasks import logs
from tasks.worker.ledger_telemetry import carrier_notes

logger = logs.harmless_logger(__name__)

#: Seconds that a mark may wait for others; what a killed process had done since its last marks runs again.
MARK_WITHIN: Final = 0.005
#: Seconds for which a look that the transport took along holds; what begins later is looked at again.
LOOK_HOLDS: Final = 1.0
#: Seconds in which a mark that goes along with an acknowledgement is made, but for an outage.
BUNDLED_WITHIN: Final = 2.0
#: Seconds for which marks are tried again before they travel with the message.
MARK_FOR: Final = 5.0
#: Seconds between two tries.
MARK_EVERY: Final = 0.5
#: Fates of a delivery that those behind it in its order need not wait for any more.
FINAL_FATES: Final = frozenset({Fate.DONE, Fate.DEAD, Fate.DISCARDED, Fate.GAP})


class BatchFates:
    """The fates of one batch.

    Parameters:
        ledger: `None` where there is no Redis for it: nothing is known, nothing is marked.
        other_names: that the handler has besides: what was settled under one of them is settled.
        replay_topic: by which comes what a person sent back, though it is dead.

    What came by a record of a retry or replay topic is settled where that record is, and where its origin has ended;
    both are marked in one step.
    """

    _ledgers: ClassVar[dict[tuple[int, str, str], tuple[Ledger | None, TopicNames]]] = {}
    #: What this process has had marked along, the oldest in front, and when: the mark may be on its way.
    _bundled: ClassVar[dict[tuple[Account, int], float]] = {}

    def __init__(
        self, ledger: Ledger | None, batch: Batch, other_names: Sequence[str] = (), replay_topic: str = ""
    ) -> None:
        self._ledger = ledger
        replays = batch.via is not None and batch.via.topic == replay_topic
        self._retried = {each.message.offset for each in batch.deliveries if each.retried(replays=replays)}
        self._again = {each.message.offset for each in batch.deliveries if each.again}
        self._account = Account(batch.handler, batch.topic, batch.topic_id, batch.partition)
        self._others = [Account(name, batch.topic, batch.topic_id, batch.partition) for name in other_names]
        #: Where the records by which they came have fates of their own, and at which offset each.
        self._own = (
            None
            if batch.via is None
            else Account(RETRY_RECORD, batch.via.topic, batch.via.topic_id, batch.via.partition)
        )
        self._own_offsets = {each.message.offset: each.via.offset for each in batch.deliveries if each.via is not None}
        self._unwritten: dict[int, Fate] = {}
        #: Offsets of what `settled` found to be discarded: a person gave it up, so it never ran to its end.
        self.discarded: set[int] = set()
        self._writing = threading.Lock()
        self._marked_at = time.monotonic()

    @classmethod
    def of(cls, app: Celery, batch: Batch) -> "BatchFates":
        """The book of a batch, on the ledger of the group that handed it off."""
        # A connection must not be shared with the process that this one was forked from.
        key = (os.getpid(), batch.cluster, batch.group)
        if key not in cls._ledgers:
            chosen = settings.load(app, os.environ).of_group(batch.group)
            made = Ledger.of(chosen, batch.cluster) if batch.group else None
            cls._ledgers[key] = (made, TopicNames.of(chosen))
        ledger, names = cls._ledgers[key]
        other_names = getattr(app.tasks.get(batch.handler), "other_names", ())
        return cls(ledger, batch, other_names, names.replay(batch.topic))

    @property
    def ledger(self) -> Ledger | None:
        """Where the fates are; `None` where there is no Redis for it."""
        return self._ledger

    @property
    def unwritten(self) -> dict[int, Fate]:
        """What the ledger has not been told yet."""
        return self._unwritten

    def settled(self, offsets: Sequence[int]) -> set[int]:
        """Those of these offsets (ascending) that are settled: they are not run again.

        Raises:
            LedgerUnavailable: it is not known.
        """
        if self._ledger is None:
            return set()
        in_flight = [offset for offset in offsets if self._is_in_flight(offset)]
        settled, elsewhere = self._looked_up(self._ledger, offsets)
        for offset, fate in elsewhere.items():
            if offset not in settled:
                # The bridge asks for what it handed off, where it has handed it off.
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

    def _looked_up(self, ledger: Ledger, offsets: Sequence[int]) -> tuple[set[int], dict[int, Fate]]:
        """Those of these that are settled where they were handed off; and what is settled elsewhere, with how."""
        names = (self._account, *self._others)
        if self._own is None:
            here, *others = ledger.fates_of([(account, offsets) for account in names])
            self.discarded.update(offset for offset, fate in zip(offsets, here, strict=True) if fate == Fate.DISCARDED)
            return {offset for offset, fate in zip(offsets, here, strict=True) if is_to_skip(Fate(fate))}, {
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

    def over(self, offsets: Sequence[int]) -> set[int]:
        """Those of these offsets (ascending) for which nothing waits that comes after them in their order.

        Raises:
            LedgerUnavailable: it is not known.
        """
        if self._ledger is None:
            return set(offsets)
        found = self._ledger.fates_of([(account, offsets) for account in (self._account, *self._others)])
        return {
            offset for fates in found for offset, fate in zip(offsets, fates, strict=True) if Fate(fate) in FINAL_FATES
        }

    def _is_in_flight(self, offset: int) -> bool:
        """Whether a delivery was done here a moment ago: the main process may not have had Redis mark it yet."""
        at = None if offset in self._again else self._bundled.get((self._account, offset))
        return at is not None and time.monotonic() - at < BUNDLED_WITHIN

    def _note_bundled(self, offset: int) -> None:
        now = time.monotonic()
        self._bundled.pop((self._account, offset), None)
        self._bundled[self._account, offset] = now
        while now - self._bundled[oldest := next(iter(self._bundled))] > BUNDLED_WITHIN:
            del self._bundled[oldest]

    def forgot_at(self, message: Message) -> float | None:
        """When the ledger may have forgotten how this message ended (Unix time): its Redis was wiped or started again
        after the record was produced. `None` if it was not.
        """
        if self._ledger is None:
            return None
        try:
            since = self._ledger.since()
        except LedgerUnavailable:
            return time.time()
        return since if message.timestamp is None or message.timestamp < since * 1000 else None

    def carried(self, task_id: str, offsets: Sequence[int]) -> None:
        """Note that these (ascending) have ended in this task; nothing rests on it, and nothing waits for it."""
        if self._ledger is not None and offsets:
            carrier_notes.add(self._ledger, TaskNote(task_id, self._account, offsets))

    def carried_alone(self, offset: int) -> None:
        """Note that a delivery has ended in a task that carried no other; as `carried`."""
        if self._ledger is not None:
            carrier_notes.add_alone(self._ledger, self._account, offset)

    def waits(self, offsets: Sequence[int], due: float) -> None:
        """Note that deliveries wait for their retry until `due` (Unix time); nothing rests on it."""
        if self._ledger is None:
            return
        try:
            note_waiting_retries(self._ledger, self._account, offsets, due)
        except LedgerUnavailable as error:
            logger.debug("%s", error)

    def open_when_taken(self, offset: int, properties: Mapping[str, Any]) -> bool:
        """Whether a delivery was not settled a moment ago, when its message was taken: what `settled` would say.

        Parameters:
            properties: of the message. False where they do not say it, or say it of too long ago.
        """
        at, found = properties.get(LOOKED) or (0.0, "")
        if self._others or time.monotonic() - at > LOOK_HOLDS:
            return False
        fate = read_found_fate(found, offset)
        return fate is not None and not is_to_skip(fate)

    def bundle_done(self, offset: int) -> bool:
        """Have a delivery marked done in one step with the acknowledgement of its message, which is to follow.

        Returns:
            whether it will be; if not, it is to be marked as ever.
        """
        if self._ledger is None:
            return False
        call = self._ledger.call([Mark(self._account, [offset], Fate.DONE)])
        heard = bundle_step(BundledStep(call.keys, call.args), lambda: self.mark(offset, Fate.DONE))
        if heard:
            self._note_bundled(offset)
        return heard

    def done(self, offset: int, *, now: bool = False) -> None:
        """Mark a delivery done, within milliseconds, or `now`.

        Raises:
            LedgerUnavailable: as `flush`.
        """
        self._unwritten[offset] = Fate.DONE
        if now or time.monotonic() - self._marked_at >= MARK_WITHIN:
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

    def flush(self, patience: float = MARK_FOR) -> None:
        """Write the marks that wait.

        Parameters:
            patience: seconds for which it is tried again.

        Raises:
            LedgerUnavailable: the ledger did not take them for so long; they are kept in `unwritten`.
        """
        give_up = time.monotonic() + patience
        while self._unwritten:
            try:
                with self._writing:
                    self._write()
            except LedgerUnavailable as error:
                if time.monotonic() > give_up:
                    raise
                logger.warning("tried again in %g s: %s", MARK_EVERY, error)
                time.sleep(MARK_EVERY)
        self._marked_at = time.monotonic()

    def _write(self) -> None:
        fates = dict(self._unwritten)
        if self._ledger is not None:
            by_fate: dict[Fate, list[int]] = {}
            for offset in sorted(fates):
                by_fate.setdefault(fates[offset], []).append(offset)
            marks = [Mark(self._account, offsets, fate) for fate, offsets in by_fate.items()]
            if self._own is not None:
                # In one step. How each ended is said there too: of what runs again though it was done, only there.
                own, places = self._own, self._own_offsets
                marks += [Mark(own, sorted(places[at] for at in some), fate) for fate, some in by_fate.items()]
            self._ledger.write(marks)
        for offset in fates:
            self._unwritten.pop(offset, None)
