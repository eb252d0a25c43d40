"""The Celery request of a delivery in the worker's main process: its time limits, its end, and the deliveries that
ended in this worker a moment ago.
"""

import threading
import time
from collections import OrderedDict
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from billiard.einfo import ExceptionInfo
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.worker import state

from bridge.formats.celery_header import HEADER, HeaderContents
from bridge.formats.delivery_identity import label_records
from lossless.transport.delayed_messages import JOINS
from lossless.transport.script_hook import LOOKED
from lossless.worker import request
from lossless.worker.run_outcome import unwrap_exception
from tasks.execution import batch_progress
from tasks.execution.execution_settings import read_execution_settings
from tasks.execution.process_loss import headers_after_loss
from tasks.execution.time_limits import TimeLimits

#: Seconds for which an end is remembered: longer than a fate read by the hook holds (tasks/execution/batch_fates.py).
REMEMBERED: float = 2.0


class _RecentEnd(NamedTuple):
    at: float
    #: The mark bundled with the acknowledgement: the ledger knows the end when Redis has done it.
    step: Any

    @property
    def marked_at(self) -> float:
        return max(self.at, self.step.done_at) if self.step is not None else self.at


class RecentEnds:
    """Ends of the last seconds, and those of which Redis has not answered yet, by the id of their message."""

    def __init__(self) -> None:
        self._ends: OrderedDict[str, _RecentEnd] = OrderedDict()
        #: Under the pool `threads` several end at once.
        self._changing = threading.Lock()

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, message_id: str, step: Any = None) -> None:
        """Remember that a message has ended now.

        Parameters:
            step: the step bundled with its acknowledgement (lossless.transport.script_hook.HookStep).
        """
        now = time.monotonic()
        with self._changing:
            before = self._ends.pop(message_id, None)
            if step is None and before is not None:
                step = before.step
            self._ends[message_id] = _RecentEnd(now, step)
            self._forget(now)

    def since(self, message_id: str, looked_at: float) -> bool:
        """Return whether a message ended after its fate was read, or its mark may have been missing then."""
        end = self._ends.get(message_id)
        return end is not None and looked_at <= end.marked_at

    def _forget(self, now: float) -> None:
        # Two for each new end: the backlog of a busy second shrinks, and no call takes long.
        for _ in range(2):
            message_id, end = next(iter(self._ends.items()))
            if now - end.at <= REMEMBERED:
                return
            if now - end.marked_at > REMEMBERED:  # not if it is not marked yet
                del self._ends[message_id]
            else:
                self._ends.move_to_end(message_id)


#: Seconds beyond its handlers' time that a task may take to settle its deliveries.
SETTLE_WITHIN: Final = 300
#: What ended in this process, by the delivery's identity.
recent_ends: Final = RecentEnds()
#: The messages here of deliveries that were parked or sent back, by the delivery's identity.
numbered_requests: Final[WeakValueDictionary[str, "DeliveryRequest"]] = WeakValueDictionary()


def find_identity(task_id: str) -> str:
    """Return the delivery's identity for a task id, also of a parked or replayed one (`#n`)."""
    return task_id.partition("#")[0]


class DeliveryRequest(request.Request):
    """A request of deliveries. Its time limits are kept in the child (tasks/execution/time_limits.py); here one
    stands behind them.
    """

    id: str
    name: str
    time_limits: Any
    _argsrepr: str
    _hard: float | None = None

    def __init__(self, message: Any, **options: Any) -> None:
        super().__init__(message, **options)
        self._identity = find_identity(self.id)
        if JOINS in self.request_dict:
            self._name_all()
        if LOOKED in message.properties and not self._may_believe(message):
            del message.properties[LOOKED]
        if self._identity != self.id:
            numbered_requests[self._identity] = self
        if HEADER in self.request_dict:
            task: Any = self.task
            hard, soft = self.time_limits
            soft, self._hard = TimeLimits.chosen(task, read_execution_settings(task.app), soft, hard)
            if self._hard:
                # A bulk that fails is halved until one is alone: so many calls end none of its deliveries.
                bulk: int | None = getattr(task, "bulk", None)
                calls = 1 if bulk is None else 2 + bulk.bit_length()
                most = self._hard * calls + task.batch_seconds + SETTLE_WITHIN
                # A soft limit there would hit what settles; of two that are equal the hard one counts.
                self.time_limits = (most, most if soft else None)
            elif soft:
                self.time_limits = (None, float(2**31))

    def after_loss(self, cause: str) -> dict[str, Any]:
        """Return the headers after a lost process, with the done deliveries of a batch and the one that was running."""
        pid = int(self.worker_pid or 0)
        notes = batch_progress.read_notes(pid, str(self.id))
        batch_progress.remove_process_notes(pid)
        return headers_after_loss(str(self.name), self.request_dict, notes, cause, time.time())

    def _name_all(self) -> None:
        """Name all records in the task's arguments, also those of retries that have joined the message."""
        contents = HeaderContents.from_headers(self.request_dict)
        if contents is not None and contents.offsets:
            named = label_records(contents.topic, contents.partition, sorted(contents.offsets))
            self._argsrepr = self.request_dict["argsrepr"] = named

    def _may_believe(self, message: Any) -> bool:
        """Return whether the fate that the script hook read with the message still holds."""
        if not hasattr(message.channel, "bundle_with_ack"):
            return False  # from another transport it is the sender's claim
        # Another message of the same delivery is here: by the time that this one runs, that may have ended. Or it has.
        # After a Redis that was wiped one may be read again and another sent back.
        identity = self._identity
        here = self.id in state.requests or identity in state.requests or identity in numbered_requests
        return not here and not recent_ends.since(identity, message.properties[LOOKED][0])

    def acknowledge(self) -> None:
        """Acknowledge, and remember that it has ended."""
        super().acknowledge()
        recent_ends.add(self._identity, self._step)

    def send_event(self, type: str, **fields: Any) -> Any:
        """Flower's search reads results and not exceptions: of a batch it must find the records that are dead."""
        if type == "task-failed" and HEADER in self.request_dict:
            fields.setdefault("result", fields.get("exception"))
        return super().send_event(type, **fields)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """Handle a failure; a process that ended because a handler overran its hard limit counts as a time limit."""
        recent_ends.add(self._identity)  # it may have marked it
        if not self._overran(unwrap_exception(exc_info.exception)):
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
        contents = HeaderContents.from_headers(self.request_dict)
        if contents is not None and len(contents.offsets) == 1:
            return time.time() - self.time_start >= self._hard
        return batch_progress.read_notes(int(self.worker_pid or 0), str(self.id)).overran
