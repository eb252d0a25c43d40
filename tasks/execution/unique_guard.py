"""The unique names in one run of a batch: a delivery claims the name of its message before its handler runs.

The claim holds while the handler runs. It is released when the run fails, so that of two records with one name either
may succeed: a first one that waits for its retry, or is dead, makes no second one done. If its process is killed, the
claim ends with its lease, when the record runs again, or when it is dead or discarded.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from bridge.errors import LedgerUnavailable
from bridge.formats.delivery import Delivery
from bridge.ledger.ledger_scripts import NameMark
from bridge.ledger.name_claims import GRANTED, NameClaim, NameClaims
from tasks import logs
from tasks.declaration.message_task import MessageTask
from tasks.execution.batch_fates import BatchFates
from tasks.execution.time_limits import TimeLimits

logger = logs.harmless_logger(__name__)

#: Seconds that a claim outlives the hard time limit of its run: the process is killed then, and runs it again.
LEASE_MARGIN: Final = 60.0
#: Seconds of a claim whose run has no hard time limit.
LEASE_WITHOUT_LIMIT: Final = 3_600.0


class UniqueGuard:
    """The guard of one batch's unique names.

    Parameters:
        claims: `None` if the handler names no messages, or there is no ledger: then all may run.
        settle_ended: settles the deliveries of this batch that have ended.
        run_within_limits: runs a function of the user's for a delivery, within the handler's time limits.

    Attributes:
        is_used: whether there is anything to claim.
        run_within_limits: as given; another one if handlers run side by side.
        duplicates: the offsets of deliveries whose names other records have done.
    """

    def __init__(
        self,
        task: MessageTask[..., Any],
        fates: BatchFates,
        claims: NameClaims | None,
        settle_ended: Callable[[], None],
        run_within_limits: Callable[[Delivery, Callable[[], bytes | None]], bytes | None],
    ) -> None:
        self._task, self._fates, self._claims = task, fates, claims
        self._settle_ended, self.run_within_limits = settle_ended, run_within_limits
        self._claimed: set[str] = set()
        self.is_used = claims is not None
        self.duplicates: set[int] = set()

    @classmethod
    def for_batch(
        cls,
        task: MessageTask[..., Any],
        fates: BatchFates,
        settle_ended: Callable[[], None],
        run_within_limits: Callable[[Delivery, Callable[[], bytes | None]], bytes | None],
    ) -> "UniqueGuard":
        """Return the guard of a batch with these fates."""
        claims = None if task.unique is None or fates.ledger is None else NameClaims(fates.ledger)
        return cls(task, fates, claims, settle_ended, run_within_limits)

    def claim(self, delivery: Delivery) -> NameClaim:
        """Claim the name of a delivery's message; granted also if it has none.

        Raises:
            LedgerUnavailable: the ledger does not answer.
            Exception: no name could be found (`UniqueName.find`).
        """
        if self._claims is None or (mark := self._find_mark(delivery)) is None:
            return GRANTED
        if mark.key in self._claimed:
            # A neighbour in this batch has the name, and may have ended without its mark in the ledger.
            self._settle_ended()
        # A person asked for this run, whatever was done before.
        granted = GRANTED if delivery.again else self._claim(self._claims, mark, replayed=is_replayed(delivery))
        if granted.state == "granted":
            self._fates.names[delivery.message.offset] = mark
            self._claimed.add(mark.key)
        elif granted.state == "done":
            self.duplicates.add(delivery.message.offset)
        return granted

    def _claim(self, claims: NameClaims, mark: NameMark, *, replayed: bool) -> NameClaim:
        lease = self._find_lease()
        granted = claims.claim(mark.key, mark.record, lease, replayed=replayed)
        if granted.state == "running" and claims.is_given_up(self._fates.accounts, granted.record):
            # Its process was killed, and nothing releases the name.
            claims.release(mark.key, granted.record)
            granted = claims.claim(mark.key, mark.record, lease, replayed=replayed)
        return granted

    def note_success(self, delivery: Delivery) -> None:
        """Note that a delivery's handler succeeded in an earlier run: its name is done when it is marked."""
        if self._claims is None:
            return
        with suppress(Exception):
            if (mark := self._find_mark(delivery)) is not None:
                self._fates.names[delivery.message.offset] = mark
                self._claimed.add(mark.key)

    def keep(self, delivery: Delivery) -> None:
        """Keep the name of a delivery whose handler has succeeded, and whose messages Kafka does not take yet."""
        if (claims := self._claims) is not None and (
            mark := self._fates.names.get(delivery.message.offset)
        ) is not None:
            lease = max(mark.seconds, self._find_lease())
            _try(lambda: claims.claim(mark.key, mark.record, lease, replayed=is_replayed(delivery)))

    def release(self, delivery: Delivery) -> None:
        """Release the name of a delivery whose run did not succeed; another record with it may run now."""
        claims = self._claims
        if claims is None or (mark := self._fates.names.pop(delivery.message.offset, None)) is None:
            return
        self._claimed.discard(mark.key)
        _try(lambda: claims.release(mark.key, mark.record))

    def _find_mark(self, delivery: Delivery) -> NameMark | None:
        task, claims = self._task, self._claims
        name = self.run_within_limits(delivery, lambda: task.find_unique_name(delivery.message))
        if name is None or task.unique is None or claims is None:
            return None
        message, unique = delivery.message, task.unique
        return NameMark(claims.key(unique.scope, message.topic, name), message.coordinates, unique.seconds)

    def _find_lease(self) -> float:
        hard = TimeLimits.from_request(self._task).hard
        return LEASE_WITHOUT_LIMIT if hard is None else hard + LEASE_MARGIN


def is_replayed(delivery: Delivery) -> bool:
    """Return whether a person has sent a delivery back, which stays dead in the ledger while it runs."""
    return bool(delivery.attempts.replayed)


def _try(act: Callable[[], object]) -> None:
    """Act on a claim; what fails here ends with the lease."""
    try:
        act()
    except LedgerUnavailable as error:
        logger.debug("%s", error)
