"""The task class behind `@handler`.

The life of a failing message:

1. The bridge hands it off as a Celery message; its record travels in one header, as bytes.
2. The worker's child decodes it and calls the handler. An error goes to `tasks.policy.failure_decision`, which decides.
3. A retry is Celery's own: the message is sent again with a countdown, then the first one is acknowledged.
4. A dead letter is published, Kafka acknowledges it, and only then is the Celery message acknowledged. As
   long as Kafka cannot take it, the message is sent again, marked as dead: the handler does not run again.
5. Whatever breaks on the way, the Celery message stays in the broker.
"""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Generic

from celery.app.trace import task_has_custom
from celery.exceptions import Reject, Retry

from bridge.formats.celery_header import HEADER
from bridge.formats.delivery import Headers, Message
from lossless.worker.run_outcome import ComeBack
from tasks import logs
from tasks.declaration.bulk_messages import BulkCall
from tasks.declaration.celery_defaults import P, R_co
from tasks.declaration.message_codec import EncodedValue
from tasks.declaration.message_task import HandlerRun, MessageTask
from tasks.declaration.value_codec import (
    Codec,
    Decode,
    DecodeSteps,
    ValueCheck,
    check_value,
    make_decode_steps,
    make_decoder,
)
from tasks.errors import DeadLettered, HandlerError, RetryAsked, fault_in_delay
from tasks.execution import batch_run
from tasks.execution.event_loop import finish_handler
from tasks.execution.execution_settings import ExecutionSettings
from tasks.execution.time_limits import TimeLimits
from tasks.policy.effective_decisions import find_effective_policy
from tasks.policy.retry_backoff import MAX_RETRIES

logger = logs.harmless_logger(__name__)


class HandlerTask(MessageTask[P, R_co], Generic[P, R_co]):
    """A Celery task that handles the messages of one or more topics.

    Called with a record (by the bridge) it decodes, runs and settles it. Called as a plain Celery task
    (`charge.delay(order)`) or as a function (`charge(order)`, also by the handler itself) it runs the function with
    what it is given.
    """

    abstract = True
    Request = "tasks.worker.delivery_request:DeliveryRequest"
    # The arguments of a delivery are made from its record; there are none to check when it is sent.
    typing = False
    max_retries = MAX_RETRIES
    throws = (DeadLettered,)

    codec: Codec = None
    #: The decoding from a record to the value: its steps, and all of them as one function.
    way: DecodeSteps = make_decode_steps(None)
    decode_record: Decode = staticmethod(make_decoder(None))
    value_wanted: bool = True
    message_name: str | None = None
    message_first: bool = False

    @property
    def one_by_one(self) -> str:
        """The reason why deliveries go one by one although the batch size is automatic; empty if they do not."""
        if self.batch != "auto":
            return ""
        if self.rate_limit:
            return f"its rate_limit is {self.rate_limit}"
        if self.concurrency not in (1, "auto"):
            # Each has limits of its own, and none waits for the one before it.
            return ""
        limits = [limit for limit in TimeLimits.chosen(self, ExecutionSettings.from_conf(self.app.conf)) if limit]
        return f"its time limit is {min(limits):g} s" if limits and min(limits) < 1 else ""

    @property
    def longest_wait(self) -> float:
        """The longest delay or hard time limit of one of its messages, in seconds."""
        return max(self.policy.longest_delay, self.time_limit or self.app.conf.task_time_limit or 0)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function; in a worker, run and settle a delivery."""
        # Inside a run the caller is the handler itself: it calls its function, not its delivery once more.
        request = self.request
        if request.called_directly or HandlerRun.find_current(self) is not None:
            return super().__call__(*args, **kwargs)
        header = (request.headers or {}).get(HEADER)
        with HandlerRun(self):
            result: R_co = (
                finish_handler(self.run(*args, **kwargs)) if header is None else batch_run.run_batch(self, header)
            )
        return result

    def decode(self, value: bytes | None, headers: Headers = ()) -> Any:
        """Return the value that the handler would get; raise as its codec and its model do.

        Parameters:
            value: as in Kafka; `None` is a tombstone.
            headers: of its record.
        """
        return self.decode_record(EncodedValue(value, headers))

    def check_value(self, value: bytes | None, headers: Headers = ()) -> ValueCheck:
        """Return whether this handler would get a value, as it is or upgraded; it does not run. Never raises.

        Parameters:
            value: as in Kafka; `None` is a tombstone.
            headers: of its record.
        """
        return check_value(self.way, value, headers)

    def call(self, message: Message) -> Any:
        """Decode a message, and run the handler's function on it to its end."""
        return finish_handler(self._begin(message))

    async def call_async(self, message: Message) -> Any:
        """Decode a message, and await the handler's function on it, on the loop that runs."""
        return await self._begin(message)

    def _begin(self, message: Message) -> Any:
        """Decode a message, and call the handler's function on it: what is async has not run then."""
        value = self.decode_record(message)
        run: Any = self.run
        if self.message_first:
            return run(message, value)
        named = {} if self.message_name is None else {self.message_name: message}
        return run(value, **named) if self.value_wanted else run(**named)

    def call_bulk(self, call: BulkCall) -> Any:
        """Decode the messages of a call, and run the function on those that decode to its end, if there are any."""
        values = call.decode(self.decode_record)
        if not values:
            return None
        run: Any = self.run
        if self.message_first:
            return finish_handler(run(call.given, values))
        named = {} if self.message_name is None else {self.message_name: call.given}
        return finish_handler(run(values, **named) if self.value_wanted else run(**named))

    def call_alone(self, message: Message) -> Any:
        """Decode a message, and run the function on it alone to its end, also a function that takes lists.

        Raises:
            Exception: what the function raised, or said of the message.
        """
        if self.bulk is None:
            return self.call(message)
        call = BulkCall([message], {})
        returned = self.call_bulk(call)
        for error in (*call.set_aside.values(), *call.blamed.values()):
            raise error
        return returned

    def find_unique_name(self, message: Message) -> bytes | None:
        """Return the name by which a second record with the same message is known; `None`: it has none."""
        return None if self.unique is None else self.unique.find(message, self.decode_record)

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: Exception | None = None,
        throw: bool = True,
        eta: Any = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Retry:
        """Retry, as Celery's `Task.retry`, for a handler that decides itself; without retries left it is a dead letter.

        Raises:
            ValueError: the countdown, or the time until `eta`, is no number of seconds or longer than a year.
        """
        if self.request.called_directly or HEADER not in (self.request.headers or {}):
            return super().retry(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        if args is not None or kwargs is not None:
            raise HandlerError(f"{self.name}: self.retry() of a record takes no args: its message cannot change.")
        delay = countdown
        if eta is not None:
            delay = max(0.0, (eta - self.app.now()).total_seconds())
        run = HandlerRun.find_current(self)
        policy = self.policy if run is None else find_effective_policy(self, run.group)
        if delay is None:
            delay = policy.delay(run.failures if run is not None else 0)
        elif fault := fault_in_delay(delay):
            raise ValueError(f"{self.name}: self.retry() {fault}")
        limit = policy.retries if max_retries is None else max_retries
        asked = RetryAsked(delay, limit, exc or sys.exc_info()[1])
        if throw:
            raise asked
        if run is not None:
            run.ask_retry(asked)
        return asked


def guard_hooks(task: Any) -> None:
    """Have a raising hook of a task lose and end no delivery.

    Celery calls `before_start` before the run of a delivery begins, and acknowledges a task whose hook raises; what is
    retried has been sent again before `on_retry`, and its failure would make a dead letter (celery/app/trace.py).
    """
    if task_has_custom(task, "before_start"):
        task.before_start = _come_back_if_raised(task, task.before_start)
    if task_has_custom(task, "on_retry"):
        task.on_retry = logs.make_harmless(task.on_retry, lambda error: _log_hook(task, "on_retry", error))


def _come_back_if_raised(task: Any, hook: Callable[..., Any]) -> Callable[..., None]:
    @wraps(hook)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            hook(*args, **kwargs)
        except Reject:
            raise
        except Exception as error:
            if HEADER not in (task.request.headers or {}):
                raise
            _log_hook(task, "before_start", error)
            raise ComeBack(f"before_start of {task.name} raised {type(error).__name__}: {error}", {}) from error

    return guarded


def _log_hook(task: Any, hook: str, error: Exception) -> None:
    then = "the delivery comes back, and runs later" if hook == "before_start" else "the delivery is retried anyway"
    logger.error("%s: its %s raised %s: %s; %s.", task.name, hook, type(error).__name__, error, then)
