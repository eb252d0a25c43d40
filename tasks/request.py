"""The worker's main process side of a delivery: what Celery counts for a task is counted for a message."""

import time
from typing import Any, Final
from weakref import WeakValueDictionary

from billiard.einfo import ExceptionInfo
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.worker import state

from bridge.records.header import HEADER, Contents
from bridge.records.naming import label
from lossless.transport.joining import JOINS
from lossless.transport.riding import LOOKED
from lossless.worker import request
from lossless.worker.ending import raised
from tasks import progress
from tasks.aftermath import headers_after
from tasks.ended import Ended
from tasks.limits import Limits

#: Seconds beyond its handlers' time that a task may take to settle its deliveries.
SETTLE_WITHIN: Final = 300
#: What ended in this process, by the delivery's identity.
ended: Final = Ended()
#: The messages here of deliveries that were parked or sent back, by the delivery's identity.
numbered: Final[WeakValueDictionary[str, "Request"]] = WeakValueDictionary()


def identity_of(task_id: str) -> str:
    """Return what all messages of one delivery have in common, those that were parked or sent back (`#n`) too."""
    return task_id.partition("#")[0]


class Request(request.Request):
    """A request of deliveries. Its time limits are kept in the child (tasks/limits.py); here one stands behind them."""

    id: str
    name: str
    time_limits: Any
    _argsrepr: str
    _hard: float | None = None

    def __init__(self, message: Any, **options: Any) -> None:
        super().__init__(message, **options)
        if JOINS in self.request_dict:
            self._name_all()
        if LOOKED in message.properties and not self._may_believe(message):
            del message.properties[LOOKED]
        if (identity := identity_of(self.id)) != self.id:
            numbered[identity] = self
        if HEADER in self.request_dict:
            task: Any = self.task
            hard, soft = self.time_limits
            soft, self._hard = Limits.chosen(task, soft, hard)
            if self._hard:
                most = self._hard + task.batch_seconds + SETTLE_WITHIN
                # A soft limit there would hit what settles; of two that are equal the hard one counts.
                self.time_limits = (most, most if soft else None)
            elif soft:
                self.time_limits = (None, float(2**31))

    def after_loss(self, cause: str) -> dict[str, Any]:
        """Of a batch: what was done of it, and the ledger may not have been told; and which of it was running."""
        pid = int(self.worker_pid or 0)
        notes = progress.notes_of(pid, str(self.id))
        progress.forget(pid)
        return headers_after(str(self.name), self.request_dict, notes, cause, time.time())

    def _name_all(self) -> None:
        """Retries have joined this one: its arguments named those of the first alone."""
        contents = Contents.of(self.request_dict)
        if contents is not None and contents.offsets:
            named = label(contents.topic, contents.partition, sorted(contents.offsets))
            self._argsrepr = self.request_dict["argsrepr"] = named

    def _may_believe(self, message: Any) -> bool:
        """Whether the look that came with the message holds."""
        if not hasattr(message.channel, "do_along"):
            return False  # what another transport than ours lets through is a sender's word
        # Another message of the same delivery is here: by the time that this one runs, that may have ended. Or it has.
        # After a Redis that was wiped one may be read again and another sent back.
        identity = identity_of(self.id)
        here = self.id in state.requests or identity in state.requests or identity in numbered
        return not here and not ended.since(identity, message.properties[LOOKED][0])

    def acknowledge(self) -> None:
        """Acknowledge, and remember that it has ended."""
        super().acknowledge()
        ended.add(identity_of(self.id), self._step)

    def send_event(self, type: str, **fields: Any) -> Any:
        """Flower's search reads results and not exceptions: of a batch it must find the records that are dead."""
        if type == "task-failed" and HEADER in self.request_dict:
            fields.setdefault("result", fields.get("exception"))
        return super().send_event(type, **fields)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """A process that was lost with its only delivery after the hard limit was ended for that."""
        ended.add(identity_of(self.id))  # it may have marked it
        if not self._overran(raised(exc_info.exception)):
            super().on_failure(exc_info, send_failed_event, return_ok)
            return
        try:
            raise TimeLimitExceeded(self._hard)
        except TimeLimitExceeded:
            self._overrun = ExceptionInfo()
        self._when_dead()

    def _overran(self, error: BaseException) -> bool:
        lost = isinstance(error, WorkerLostError) and "SIGKILL" in str(error)
        if not lost or not self._hard or not self.time_start:
            return False
        contents = Contents.of(self.request_dict)
        alone = contents is not None and len(contents.offsets) == 1
        return alone and time.time() - self.time_start >= self._hard
