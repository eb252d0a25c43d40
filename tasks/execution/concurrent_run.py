"""The run of a batch whose `async def` handlers run side by side (`concurrency=`).

Two threads share the work, so that neither waits for the other. The task's own thread runs the event loop, and with it
the handlers: signals arrive there. A second thread decides and settles: it may wait for Redis and Kafka.
"""

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from billiard.exceptions import SoftTimeLimitExceeded
from celery._state import pop_current_task, push_current_task  # type: ignore[attr-defined]

from bridge.errors import LedgerUnavailable
from bridge.formats.delivery import Batch, Delivery
from lossless.background_thread import start_call
from tasks.declaration.message_task import HandlerRun, MessageTask
from tasks.errors import GivenAway
from tasks.execution.batch_progress import BatchState
from tasks.execution.delivery_admission import AdmittedDelivery
from tasks.execution.event_loop import find_loop
from tasks.execution.handler_attempt import AttemptEnd, HandlerAttempts
from tasks.execution.time_limits import WatchedRun
from tasks.logs import set_logged_delivery

T = TypeVar("T")


class DeliveryLanes:
    """The deliveries of a batch that have not started; of each lane one may run at a time (pure).

    Parameters:
        order: "key": the deliveries of one key are a lane; "partition": all are one; `None`: each is one.
    """

    def __init__(self, deliveries: Iterable[Delivery], order: str | None) -> None:
        self._order = order
        self._free: deque[Delivery] = deque()
        #: The deliveries behind the one of their lane that is free or runs; the lanes that have one.
        self._behind: dict[bytes | None, deque[Delivery]] = {}
        for delivery in deliveries:
            if self._has_lane(delivery) and (lane := self._lane(delivery)) in self._behind:
                self._behind[lane].append(delivery)
                continue
            if self._has_lane(delivery):
                self._behind[self._lane(delivery)] = deque()
            self._free.append(delivery)

    def take(self) -> Delivery | None:
        """Take the next delivery that may start; `None`: there is none now."""
        return self._free.popleft() if self._free else None

    def release(self, delivery: Delivery) -> None:
        """Let the next delivery of a lane start: the one before it has ended."""
        if not self._has_lane(delivery):
            return
        if behind := self._behind[self._lane(delivery)]:
            self._free.append(behind.popleft())
        else:
            del self._behind[self._lane(delivery)]

    def take_rest(self) -> list[Delivery]:
        """Take all that have not started, ordered by offset."""
        rest = [*self._free, *(delivery for behind in self._behind.values() for delivery in behind)]
        self._free.clear()
        for behind in self._behind.values():
            behind.clear()
        return sorted(rest, key=lambda delivery: delivery.message.offset)

    def _has_lane(self, delivery: Delivery) -> bool:
        return self._order == "partition" or (self._order == "key" and delivery.message.key is not None)

    def _lane(self, delivery: Delivery) -> bytes | None:
        return delivery.message.key if self._order == "key" else None


class EndedAttempt(NamedTuple):
    """An attempt that has ended."""

    admitted: AdmittedDelivery
    end: AttemptEnd


class ConcurrentAttempts(HandlerAttempts):
    """The attempts of one batch, side by side on the event loop of the task's thread."""

    def __init__(
        self, task: MessageTask[..., Any], batch: Batch, last_will: Callable[[], None], state: BatchState
    ) -> None:
        super().__init__(task, batch, last_will, state)
        self._group = batch.group
        self._loop = find_loop()
        self._context = contextvars.copy_context()
        self._running: dict[asyncio.Task[AttemptEnd], AdmittedDelivery] = {}
        self._ended: SimpleQueue[EndedAttempt | None] = SimpleQueue()
        self._is_closing = False

    def run_until_settled(self, settle: Callable[[], object]) -> None:
        """Run handlers on the loop until `settle`, which starts them from a thread of its own, has returned.

        Raises:
            WorkerShutdown, WorkerTerminate, SystemExit: the worker ends, or this process must: the handlers are
                cancelled, so that they clean up, and nothing more is settled.
            BaseException: what `settle` raised.
        """
        request = self._task.request

        def work() -> None:
            with _as_running_task(self._task, request):
                settle()

        settling = start_call("settlement", work)
        try:
            self._loop.run_until_complete(asyncio.wrap_future(settling, loop=self._loop))
        except BaseException:
            if not settling.done():
                self._is_closing = True
                self._ended.put(None)
            self._cancel_handlers()
            if self.is_ending:
                self._last_will()
            else:
                # What it is settling now is settled before the message is given back.
                settling.exception()
            raise

    def start(self, admitted: AdmittedDelivery) -> None:
        """Start the handler of a delivery. Call it in the thread that settles."""
        self._loop.call_soon_threadsafe(self._begin, admitted)

    def wait(self, seconds: float | None) -> list[EndedAttempt] | None:
        """Return the attempts that have ended, at the latest after so many seconds; `None`: the process ends."""
        found: list[EndedAttempt] = []
        with suppress(Empty):
            ended = self._ended.get(timeout=seconds)
            while ended is not None:
                found.append(ended)
                ended = self._ended.get_nowait()
            return None
        return found

    def _begin(self, admitted: AdmittedDelivery) -> None:
        if self._is_closing:
            return
        task = self._loop.create_task(self.attempt(admitted.delivery), context=self._context.copy())
        self._running[task] = admitted
        task.add_done_callback(self._finish)
        self._note_running()

    def _finish(self, task: "asyncio.Task[AttemptEnd]") -> None:
        admitted = self._running.pop(task)
        if not self._is_closing:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            self._ended.put(EndedAttempt(admitted, task.result() if error is None else AttemptEnd(0.0, error=error)))
        self._note_running()

    async def attempt(self, delivery: Delivery) -> AttemptEnd:
        """Run the handler on a delivery's message to its end, and return that end."""
        set_logged_delivery(delivery)
        run, started = HandlerRun(self._task, delivery.attempts.failed, self._group), time.monotonic()
        strike = _SoftStrike(asyncio.current_task(), self._loop)
        try:
            with run, self._watching(delivery, strike):
                returned = await self._task.call_async(delivery.message)
            return AttemptEnd(time.monotonic() - started, returned, run.asked)
        except BaseException as error:
            if self._is_closing:
                raise
            if isinstance(error, asyncio.CancelledError) and strike.has_cancelled:
                error = SoftTimeLimitExceeded().with_traceback(error.__traceback__)
            return self.end_of_error(delivery, error, started)

    @contextmanager
    def _watching(self, delivery: Delivery, strike: "_SoftStrike") -> Iterator[None]:
        if self._watchdog is None:
            yield
            return
        with self._watchdog.watch(WatchedRun(self._limits, lambda: self._end_by(delivery), strike)):
            yield

    def _judge_within_limits(self, delivery: Delivery, judge: Callable[[], T]) -> T:
        if self._watchdog is None:
            return judge()
        # It runs in the thread that settles, where no signal arrives: only the hard limit ends it.
        with self._watchdog.watch(WatchedRun(self._limits, lambda: self._end_by(delivery), lambda: False)):
            return judge()

    def _end_by(self, delivery: Delivery) -> None:
        """Charge the end of the process to the delivery that overran its hard limit, whichever others run."""
        self._state.charge(delivery)
        self._overran(delivery.identity)

    def _note_running(self) -> None:
        only = next(iter(self._running.values())).delivery if len(self._running) == 1 else None
        self._state.note_only_running(only)

    def _cancel_handlers(self) -> None:
        left = list(self._running)
        for task in left:
            task.cancel()
        if left:
            with suppress(BaseException):
                self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))


class _SoftStrike:
    """A soft time limit that strikes one handler on the loop, and no other; called in the main thread."""

    def __init__(self, task: "asyncio.Task[Any] | None", loop: asyncio.AbstractEventLoop) -> None:
        self._task, self._loop = task, loop
        self.has_cancelled = False

    def __call__(self) -> bool:
        """Return whether the handler's own code runs now, so that the error is raised there; else cancel it."""
        if self._task is None or asyncio.current_task(self._loop) is self._task:
            return True
        self.has_cancelled = True
        self._loop.call_soon_threadsafe(self._task.cancel)
        return False


@contextmanager
def _as_running_task(task: Any, request: Any) -> Iterator[None]:
    """Let this thread be in a task, as the thread of the task is: what it sends has the same origin."""
    task.request_stack.push(request)
    push_current_task(task)
    try:
        yield
    finally:
        pop_current_task()
        task.request_stack.pop()


@dataclass(frozen=True)
class RunSteps:
    """The steps of a batch's run, called in the thread that settles.

    Attributes:
        check: raises if nothing more may start.
        prepare: returns a delivery whose handler runs now; `None`: it was settled or put off without a run.
        settle: settles a delivery whose handler has ended.
        catch_up: marks and publishes what waits for it; returns the seconds until it must be called again, or `None`.
        put_back: puts back deliveries that have not started: the batch's time is over.
        note_pace: notes how many deliveries have ended since the last call, and the seconds that they took: the time of
            their runs, divided by how many run side by side.
        give_up_ledger: called once the ledger did not answer: no later mark waits for it.
    """

    check: Callable[[], None]
    prepare: Callable[[Delivery], AdmittedDelivery | None]
    settle: Callable[[AdmittedDelivery, AttemptEnd], None]
    catch_up: Callable[[], float | None]
    put_back: Callable[[list[Delivery]], None]
    note_pace: Callable[[int, float], None]
    give_up_ledger: Callable[[], None]


class ConcurrentRun:
    """The run of a batch's deliveries, so many side by side.

    Parameters:
        width: how many handlers run at once.
        until: when the batch's time is over, by the monotonic clock.
    """

    def __init__(
        self, attempts: ConcurrentAttempts, steps: RunSteps, width: int, order: str | None, until: float
    ) -> None:
        self._attempts, self._steps, self._width, self._order, self._until = attempts, steps, width, order, until
        self._running = self._ended = 0
        #: Seconds of the runs that have ended and are not noted yet.
        self._seconds = 0.0
        #: Why nothing more starts; those that run are settled before it is raised.
        self._stop: BaseException | None = None

    def run(self, todo: Iterable[Delivery]) -> None:
        """Run deliveries, and settle each when its handler has ended.

        Raises:
            BaseException: what broke the run off, once the handlers that had started have ended.
        """
        lanes = DeliveryLanes(todo, self._order)
        wait: float | None = None
        while True:
            self._try(lambda: self._start(lanes))
            if not self._running:
                break
            if (ended := self._attempts.wait(wait)) is None:
                return
            for admitted, end in ended:
                self._running -= 1
                self._ended += 1
                self._seconds += end.seconds
                self._settle(admitted, end)
                lanes.release(admitted.delivery)
            wait = self._catch_up()
        self._note_pace()
        if self._stop is not None:
            raise self._stop
        if rest := lanes.take_rest():
            self._steps.put_back(rest)

    def _start(self, lanes: DeliveryLanes) -> None:
        while self._stop is None and self._running < self._width:
            if time.monotonic() > self._until and self._ended + self._running:
                if self._order is None and (rest := lanes.take_rest()):
                    # They wait for no slow one that still runs. In an order it is not known yet what they wait for.
                    self._note_pace()
                    self._steps.put_back(rest)
                return
            if (delivery := lanes.take()) is None:
                return
            self._steps.check()
            admitted = self._steps.prepare(delivery)
            if admitted is None:
                self._ended += 1
                lanes.release(delivery)
            else:
                self._running += 1
                self._attempts.start(admitted)

    def _settle(self, admitted: AdmittedDelivery, end: AttemptEnd) -> None:
        if isinstance(self._stop, GivenAway) and end.error is not None:
            # Another worker has the message, and decides about what has failed.
            return
        self._try(lambda: self._steps.settle(admitted, end))

    def _catch_up(self) -> float | None:
        wait: list[float | None] = [None]

        def catch_up() -> None:
            wait[0] = self._steps.catch_up()

        # Once the run is broken off, who handles that marks and publishes.
        if self._stop is None:
            self._try(catch_up)
        return wait[0]

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException as error:
            self._stop = self._stop or error
            if isinstance(error, LedgerUnavailable):
                self._steps.give_up_ledger()

    def _note_pace(self) -> None:
        if self._ended:
            self._steps.note_pace(self._ended, self._seconds / self._width)
        self._ended, self._seconds = 0, 0.0
