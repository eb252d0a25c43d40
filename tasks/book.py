"""The worker's side of the ledger: what is settled already, and marks that wait a few milliseconds for others."""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from celery import Celery

from bridge import settings
from bridge.errors import LedgerUnavailable
from bridge.ledger import Account, Fate, Ledger, Mark, to_skip
from bridge.ledger.carried import Note
from bridge.ledger.riding import fate_in
from bridge.ledger.underway import note_waiting
from bridge.records.message import Batch, Message
from lossless.transport.riding import LOOKED
from lossless.worker.along import Along, done_along
from tasks import observing
from tasks.notes import notes

logger = observing.log(__name__)

#: Seconds that a mark may wait for others; what a killed process had done since its last marks runs again.
MARK_WITHIN: Final = 0.005
#: Seconds for which a look that the transport took along holds; what begins later is looked at again.
LOOK_HOLDS: Final = 1.0
#: Seconds in which a mark that goes along with an acknowledgement is made, but for an outage.
ALONG_WITHIN: Final = 2.0
#: Seconds for which marks are tried again before they travel with the message.
MARK_FOR: Final = 5.0
#: Seconds between two tries.
MARK_EVERY: Final = 0.5


class Book:
    """The fates of one batch.

    Parameters:
        ledger: `None` where there is no Redis for it: nothing is known, nothing is marked.
        other_names: that the handler has besides: what was settled under one of them is settled.
    """

    _ledgers: ClassVar[dict[tuple[int, str, str], Ledger | None]] = {}
    #: What this process has had marked along, the oldest in front, and when: the mark may be on its way.
    _along: ClassVar[dict[tuple[Account, int], float]] = {}

    def __init__(self, ledger: Ledger | None, batch: Batch, other_names: Sequence[str] = ()) -> None:
        self._ledger = ledger
        self._account = Account(batch.handler, batch.topic, batch.topic_id, batch.partition)
        self._others = [Account(name, batch.topic, batch.topic_id, batch.partition) for name in other_names]
        self._unwritten: dict[int, Fate] = {}
        self._writing = threading.Lock()
        self._marked_at = time.monotonic()

    @classmethod
    def of(cls, app: Celery, batch: Batch) -> "Book":
        """The book of a batch, on the ledger of the group that handed it off."""
        # A connection must not be shared with the process that this one was forked from.
        key = (os.getpid(), batch.cluster, batch.group)
        if key not in cls._ledgers:
            chosen = settings.load(app, os.environ)
            url, days = chosen.ledger_url, chosen.file.kafka_ledger_days
            named = chosen.ledger_named
            made = Ledger(url, batch.cluster, batch.group, days, named=named) if url and batch.group else None
            cls._ledgers[key] = made
        return cls(cls._ledgers[key], batch, getattr(app.tasks.get(batch.handler), "other_names", ()))

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
        on_their_way = [offset for offset in offsets if self._is_on_its_way(offset)]
        own, *others = self._ledger.fates_of([(account, offsets) for account in (self._account, *self._others)])
        settled = {offset for offset, fate in zip(offsets, own, strict=True) if to_skip(Fate(fate))}
        for fates in others:
            for offset, fate in zip(offsets, fates, strict=True):
                if offset not in settled and to_skip(Fate(fate)):
                    # The bridge asks for what it handed off, under the name that it handed it off by.
                    self._unwritten[offset] = Fate(fate)
                    settled.add(offset)
        for offset in on_their_way:
            if offset not in settled:
                self._unwritten[offset] = Fate.DONE
                settled.add(offset)
        self.flush()
        return settled

    def _is_on_its_way(self, offset: int) -> bool:
        """Whether a delivery was done here a moment ago: the main process may not have had Redis mark it yet."""
        at = self._along.get((self._account, offset))
        return at is not None and time.monotonic() - at < ALONG_WITHIN

    def _note_along(self, offset: int) -> None:
        now = time.monotonic()
        self._along.pop((self._account, offset), None)
        self._along[self._account, offset] = now
        while now - self._along[oldest := next(iter(self._along))] > ALONG_WITHIN:
            del self._along[oldest]

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
            notes.add(self._ledger, Note(task_id, self._account, offsets))

    def carried_alone(self, offset: int) -> None:
        """Note that a delivery has ended in a task that carried no other; as `carried`."""
        if self._ledger is not None:
            notes.add_alone(self._ledger, self._account, offset)

    def waits(self, offsets: Sequence[int], due: float) -> None:
        """Note that deliveries wait for their retry until `due` (Unix time); nothing rests on it."""
        if self._ledger is None:
            return
        try:
            note_waiting(self._ledger, self._account, offsets, due)
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
        fate = fate_in(found, offset)
        return fate is not None and not to_skip(fate)

    def done_along(self, offset: int) -> bool:
        """Have a delivery marked done in one step with the acknowledgement of its message, which is to follow.

        Returns:
            whether it will be; if not, it is to be marked as ever.
        """
        if self._ledger is None:
            return False
        call = self._ledger.call([Mark(self._account, [offset], Fate.DONE)])
        heard = done_along(Along(call.keys, call.args), lambda: self.mark(offset, Fate.DONE))
        if heard:
            self._note_along(offset)
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
        self._unwritten[offset] = fate
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
            self._ledger.write([Mark(self._account, offsets, fate) for fate, offsets in by_fate.items()])
        for offset in fates:
            self._unwritten.pop(offset, None)
