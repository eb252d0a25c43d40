"""The shared limit in one run of a batch: a delivery claims its start before its handler runs.

One that gets none waits in the broker and spends no attempt. Its lease (`concurrency=`) is renewed while it runs, and
ends in the step that marks it done, when its run fails, or some seconds after its process was killed.
bridge/ledger/limit_state.py decides who starts.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from bridge.errors import LedgerUnavailable
from bridge.formats.delivery import Delivery
from bridge.ledger.limit_state import LimitedDelivery, LimitLedger, LimitTerms, find_lane
from lossless.background_thread import start_thread
from tasks import logs
from tasks.declaration.message_task import MessageTask
from tasks.execution.batch_fates import BatchFates
from tasks.execution.handler_attempt import raise_if_ending
from tasks.policy.effective_decisions import find_effective_limit, find_main_name
from tasks.policy.limit_options import Limit
from tasks.worker.delivery_cost import DeliveryLaps

logger = logs.harmless_logger(__name__)

#: Seconds of work for which starts are claimed in one step.
AHEAD: Final = 0.1
#: Most deliveries that claim their starts in one step.
MOST_CLAIMED: Final = 500
#: Seconds between two renewals of leases: as long a Redis that lost its data does not know what runs.
RENEW_EVERY: Final = 3.0
#: The share of the latest run in the known seconds of a run.
LATEST: Final = 0.2

RunWithinLimits = Callable[[Delivery, Callable[[], bytes | None]], bytes | None]


class LeaseRenewal:
    """The leases of what this process runs now, which a thread renews."""

    _of_process: ClassVar[dict[int, "LeaseRenewal"]] = {}

    def __init__(self) -> None:
        self._running: dict[tuple[str, LimitedDelivery], LimitLedger] = {}
        self._changing = threading.Lock()
        self._has_begun = False

    @classmethod
    def get_renewal(cls) -> "LeaseRenewal":
        """Return the renewal of this process, the same for all of its threads; a thread does not survive a fork."""
        return cls._of_process.get(os.getpid()) or cls._of_process.setdefault(os.getpid(), cls())

    def add(self, limits: LimitLedger, name: str, delivery: LimitedDelivery) -> None:
        """Renew a lease from now on."""
        with self._changing:
            self._running[name, delivery] = limits
            if not self._has_begun:
                start_thread("limit leases", self._renew_for_ever)
                self._has_begun = True

    def drop(self, name: str, delivery: LimitedDelivery) -> None:
        """Renew a lease no more."""
        with self._changing:
            self._running.pop((name, delivery), None)

    def _renew_for_ever(self) -> None:
        while True:
            time.sleep(RENEW_EVERY)
            self.renew()

    def renew(self) -> None:
        """Renew all leases; those in a Redis that does not answer are left for the next time."""
        with self._changing:
            running: dict[tuple[str, int], list[LimitedDelivery]] = {}
            ledgers = {id(limits): limits for limits in self._running.values()}
            for (name, delivery), limits in self._running.items():
                running.setdefault((name, id(limits)), []).append(delivery)
        for (name, which), deliveries in running.items():
            with suppress(LedgerUnavailable):
                self._renew_of(ledgers[which], name, deliveries)

    def _renew_of(self, limits: LimitLedger, name: str, deliveries: Sequence[LimitedDelivery]) -> None:
        limits.renew(name, deliveries)
        with self._changing:
            ended = [delivery for delivery in deliveries if (name, delivery) not in self._running]
        if ended:
            # They ended while they were renewed: their leases may be there again.
            limits.release(name, LimitTerms(), ended)


class NoLimit:
    """The guard of a batch whose handler has no limit: all may run."""

    is_used = False
    takes = 0.0

    def begin(self, todo: Sequence[Delivery]) -> None:
        """Do nothing."""

    def claim(self, delivery: Delivery) -> float:
        """Return that it starts now."""
        return 0.0

    def note_end(self, delivery: Delivery, *, succeeded: bool) -> None:
        """Do nothing."""

    def note_settled(self, delivery: Delivery) -> None:
        """Do nothing."""

    def give_back(self, delivery: Delivery) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


NO_LIMIT: Final = NoLimit()


class LimitGuard(NoLimit):
    """The guard of one batch's limit.

    Parameters:
        limits: `None` if there is no ledger: then all may run.
        order: of the batch.
        laps: the measured times of the batch's deliveries.
        run_within_limits: runs a function of the user's for a delivery, within the handler's time limits.

    Attributes:
        is_used: whether there is anything to claim.
        run_within_limits: as given; another one if handlers run side by side.
    """

    #: By handler, the seconds that a run takes.
    _takes: ClassVar[dict[str, float]] = {}

    def __init__(
        self,
        task: MessageTask[..., Any],
        fates: BatchFates,
        limit: Limit,
        limits: LimitLedger | None,
        group: str,
        order: str | None,
        laps: DeliveryLaps,
        run_within_limits: RunWithinLimits,
    ) -> None:
        self._task, self._fates, self._limit, self._limits, self._group = task, fates, limit, limits, group
        self._order, self._laps, self.run_within_limits = order, laps, run_within_limits
        self.is_used = limits is not None
        self._lane_name = find_main_name(task.app, task) if self.is_used else ""
        self._terms = LimitTerms()
        self._todo: Sequence[Delivery] = ()
        #: By offset, the deliveries that have claimed, the seconds that each waits, and since when.
        self._claimed: dict[int, tuple[LimitedDelivery, float, float]] = {}
        #: By offset, the deliveries that run, and since when.
        self._running: dict[int, tuple[LimitedDelivery, float]] = {}
        self._has_waited = False

    @classmethod
    def for_batch(
        cls,
        task: MessageTask[..., Any],
        fates: BatchFates,
        group: str,
        order: str | None,
        laps: DeliveryLaps,
        run_within_limits: RunWithinLimits,
    ) -> "LimitGuard":
        """Return the guard of a batch with these fates."""
        limits = None if fates.ledger is None else LimitLedger(fates.ledger)
        assert task.limit is not None
        return cls(task, fates, task.limit, limits, group, order, laps, run_within_limits)

    @property
    def takes(self) -> float:  # type: ignore[override]
        """The seconds that a run of the handler takes, as far as known."""
        return self._takes.get(self._task.name, AHEAD)

    def begin(self, todo: Sequence[Delivery]) -> None:
        """Begin a batch, of which several deliveries may claim their starts in one step."""
        self._todo = todo

    def claim(self, delivery: Delivery) -> float:
        """Claim the start of a delivery; return the seconds that it waits, 0 if it starts now.

        Raises:
            LedgerUnavailable: the ledger does not answer.
            Exception: no key could be found (`Limit.find_key`).
        """
        if self._limits is None:
            return 0.0
        offset = delivery.message.offset
        if offset not in self._claimed or self._is_over(offset):
            self._claim_with_next(self._limit, self._limits, delivery)
        limited, wait, claimed_at = self._claimed.pop(offset)
        if wait:
            self._has_waited = True
            passed = time.monotonic() - claimed_at
            return wait - passed if passed > AHEAD else wait
        self._running[offset] = (limited, time.monotonic())
        if self._terms.concurrency is not None:
            self._fates.leases[offset] = self._limits.lease_end(self._limit.name, limited)
            LeaseRenewal.get_renewal().add(self._limits, self._limit.name, limited)
        return 0.0

    def _is_over(self, offset: int) -> bool:
        """Return whether the wait of a delivery that claimed with another one is over by now."""
        _, wait, claimed_at = self._claimed[offset]
        return 0 < wait <= time.monotonic() - claimed_at

    def _claim_with_next(self, limit: Limit, limits: LimitLedger, delivery: Delivery) -> None:
        self._terms = find_effective_limit(self._task, limit, self._group)
        claiming = {delivery.message.offset: self._limited(limit, delivery)}
        for following in self._find_next(delivery):
            try:
                claiming[following.message.offset] = self._limited(limit, following)
            except BaseException as error:
                # It fails when its own turn has come.
                raise_if_ending(error)
        waits, now = limits.claim(limit.name, self._terms, list(claiming.values()), self.takes), time.monotonic()
        early = []
        for (offset, limited), wait in zip(claiming.items(), waits, strict=True):
            if wait or offset == delivery.message.offset or self._terms.concurrency is None:
                self._claimed[offset] = (limited, wait, now)
            else:
                early.append(limited)
        if early:
            # A lease is for what runs: they claim again, one by one, when their turn in the batch has come.
            self._has_waited = False
            self._release(early, len(early))

    def _find_next(self, delivery: Delivery) -> Sequence[Delivery]:
        """Return the deliveries behind one that claim in the same step."""
        if self._order is not None or (self._terms.concurrency is not None and not self._has_waited):
            # Whether the next may run is not known yet; a lease is for what runs.
            return ()
        offsets = [each.message.offset for each in self._todo]
        rest = self._todo[offsets.index(delivery.message.offset) + 1 :] if delivery.message.offset in offsets else ()
        many = MOST_CLAIMED - 1
        if not self._has_waited:
            pace = self._laps.pace
            many = 0 if pace == float("inf") else min(many, int(AHEAD * pace))
        return [each for each in rest if self._runs_next(each)][:many]

    def _runs_next(self, delivery: Delivery) -> bool:
        is_over = delivery.ended or delivery.dead is not None or delivery.outgoing
        return not is_over and delivery.due is None and delivery.message.offset not in self._claimed

    def _limited(self, limit: Limit, delivery: Delivery) -> LimitedDelivery:
        key = None
        if limit.by is not None:
            key = self.run_within_limits(delivery, lambda: limit.find_key(delivery.message))
        return LimitedDelivery(find_lane(self._lane_name, key), delivery.identity)

    def note_end(self, delivery: Delivery, *, succeeded: bool) -> None:
        """Note that a run has ended; the lease of one that failed ends now, that of one that is done with its mark."""
        if (running := self._running.pop(delivery.message.offset, None)) is None:
            return
        limited, since = running
        took, known = time.monotonic() - since, self._takes.get(self._task.name)
        self._takes[self._task.name] = took if known is None else known + LATEST * (took - known)
        if delivery.message.offset in self._fates.leases:
            LeaseRenewal.get_renewal().drop(self._limit.name, limited)
            if not succeeded:
                self._fates.leases.pop(delivery.message.offset, None)
                self._release([limited])

    def note_settled(self, delivery: Delivery) -> None:
        """End the lease of a delivery that is done, and whose mark waits until Kafka has its messages."""
        if (lease := self._fates.leases.pop(delivery.message.offset, None)) is not None:
            self._release([LimitedDelivery.from_lease(lease.member)])

    def give_back(self, delivery: Delivery) -> None:
        """Give back the start of a delivery that does not run after all."""
        if (running := self._running.pop(delivery.message.offset, None)) is not None:
            self._fates.leases.pop(delivery.message.offset, None)
            LeaseRenewal.get_renewal().drop(self._limit.name, running[0])
            self._release([running[0]], unused=1)

    def end(self) -> None:
        """Give back the starts that were not used, and end the leases that are left."""
        if not self.is_used:
            return
        unused = [limited for limited, wait, _ in self._claimed.values() if not wait]
        self._claimed.clear()
        left = [limited for limited, _ in self._running.values()]
        for limited in left:
            LeaseRenewal.get_renewal().drop(self._limit.name, limited)
        self._running.clear()
        kept, self._fates.leases = self._fates.leases, {}
        if unused or left or kept:
            ended = [LimitedDelivery.from_lease(lease.member) for lease in kept.values()]
            self._release([*unused, *left, *ended], len(unused))

    def _release(self, ended: Sequence[LimitedDelivery], unused: int = 0) -> None:
        """End leases, and give back starts; what fails here ends by itself."""
        assert self._limits is not None
        try:
            self._limits.release(self._limit.name, self._terms, ended, unused)
        except LedgerUnavailable as error:
            logger.debug("%s", error)
