"""The outcome of a record at any attempt, in a test of its handler.

    from tasks.testing import outcome

    def test_an_unavailable_bank_is_asked_again():
        assert str(outcome(charge, {"id": 1}, attempt=3)) == "retry in 4 s"

The value goes through the handler's codec, model, function and policy, as it does in a worker. `outcome_of` asks what
would become of an error, without running the handler:

        assert str(outcome_of(charge, TimeoutError(), attempt=13)) == "dead: exhausted"

`unique_name` says by which name a handler with `unique_by` knows a second record with the same message:

        assert unique_name(charge, {"id": 1}) == unique_name(charge, {"id": 1, "sent_at": "later"}) == "1"

`limit_key` says by which key a handler with a `Limit` shares it.

A failed assertion, `pytest.fail`, `pytest.skip` and Ctrl-C inside the handler end the test, and are no outcome.
"""

import asyncio
import inspect
import itertools
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from pydantic_core import to_json

from bridge import settings
from bridge.errors import AlreadySettled
from bridge.formats.celery_header import HEADER
from bridge.formats.delivery import Attempts, Header, Message
from bridge.formats.outbox import OutgoingMessage
from bridge.kafka.retry_placement import TierWaits, usable_tiers
from tasks.declaration.bulk_messages import BulkCall
from tasks.declaration.handler_task import HandlerTask
from tasks.declaration.message_task import HandlerRun
from tasks.policy.bulk_outcome import concerns_all, read_bulk_outcome
from tasks.policy.failure_decision import (
    DeadLetterDelivery,
    DropDelivery,
    FailureDecision,
    HaltTopic,
    RetryDelivery,
    decide_failure,
)

#: Each value is a record of its own: offsets of this process, in a log that no other test run has.
_OFFSETS: Final = itertools.count()
_ORIGIN: Final = f"tests tests {uuid.uuid4().hex}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one run of a delivery; its text is one of `done`, `retry in 4 s`, `dead: permanent`, `halt`, `wait`.

    Attributes:
        becomes: "done", "retry", "dead" or "halt"; "wait" if the handler's circuit breaker is open: the delivery
            waits for the dependency and spends no attempt.
        returned: what the handler returned.
        error: the exception that the handler raised, or that decoding its value raised.
        delay: seconds until the retry, as long as it takes in production: a wait that goes through a Kafka retry topic
            lasts as long as that topic holds it. With jitter it is the longest delay that may be drawn.
        reason: of the dead letter, as in its header `reason`.
        fault: why an answer of the handler's `retry_when` was not taken, so that the options decided; empty if none
            was refused.
        published: the messages that `message.publish` would send to Kafka: none unless the handler succeeded.
    """

    becomes: Literal["done", "retry", "dead", "halt", "wait"]
    returned: Any = None
    error: BaseException | None = None
    delay: float | None = None
    reason: str | None = None
    fault: str = ""
    published: tuple[OutgoingMessage, ...] = ()

    def __str__(self) -> str:
        if self.becomes == "retry":
            return f"retry in {self.delay:g} s"
        return f"dead: {self.reason}" if self.becomes == "dead" else self.becomes


def outcome(
    handler: HandlerTask[..., Any],
    value: Any,
    *,
    attempt: int = 1,
    failing_for: float = 0.0,
    key: bytes | None = None,
    headers: tuple[Header, ...] = (),
    breaker_open: bool = False,
) -> Outcome:
    """Run a handler on one record, and return what would become of the delivery.

    Parameters:
        handler: what `@handler` made.
        value: bytes as they are in Kafka; `None` for a tombstone; any other value is written as JSON (as text, if the
            handler has `codec=str`); or a whole `Message`. Each value is a record of its own; give one `Message` twice
            to handle one record twice.
        attempt: which run of the handler it is; all before it have failed, and spent a retry each.
        failing_for: seconds since the first of them, for `give_up_after`.
        key, headers: of the record.
        breaker_open: whether the dependency that the handler's `breaker` names is down: the handler does not run.

    Raises:
        TypeError: the first argument is no handler, or the handler's codec reads bytes and the value is none.
        ValueError: `breaker_open` is given for a handler without a breaker.
        RuntimeError: the handler is async, and a loop runs here already: call this from a test that is not.
        AssertionError: an assertion inside the handler failed. `outcome_of` tells what a worker makes of one.
    """
    check_handler(handler, breaker_open)
    if breaker_open:
        return Outcome("wait")
    refuse_loop(handler)
    message = make_message(handler, value, attempt, key, headers)
    if handler.bulk is not None:
        return run_bulk(handler, [value], [message], failing_for)[0]
    try:
        return run_message(handler, message, failing_for)
    finally:
        if isinstance(value, Message):
            object.__setattr__(value, "outbox", message.outbox)


def run_message(handler: HandlerTask[..., Any], message: Message, failing_for: float = 0.0) -> Outcome:
    """Run a handler on a message, and return what becomes of its delivery."""
    with _running(handler, message) as run:
        try:
            handler.find_unique_name(message)
            if handler.limit is not None:
                handler.limit.find_key(message)
            returned = handler.call(message)
            if run.asked is not None:
                raise run.asked
        except AlreadySettled as error:
            return Outcome("done", error=error)
        except BaseException as error:
            if _ends_the_test(error):
                raise
            return _decided(handler, message, error, run.failures, failing_for)
    return Outcome("done", returned, published=tuple(message.outbox.messages if message.outbox else ()))


def outcomes(
    handler: HandlerTask[..., Any], values: Iterable[Any], *, attempt: int = 1, failing_for: float = 0.0
) -> list[Outcome]:
    """Run a bulk handler on several records, and return what would become of each, in their order.

    As in a worker, an exception that blames no message makes the handler run again on smaller lists, until the culprit
    is alone; what fails then has run alone.

    Parameters:
        handler: what `@handler(…, bulk=…)` made.
        values: as for `outcome`, each a record of its own; a `Message` has its key and headers.
        attempt: which run of the handler it is for all of them.
        failing_for: seconds since the first of them.

    Raises:
        TypeError: the first argument is no bulk handler, the values are one value alone, or the handler's codec reads
            bytes and a value is none.
        ValueError: there are no values, or more than one call takes.
        RuntimeError, AssertionError: as `outcome`.
    """
    check_handler(handler, False)
    if handler.bulk is None:
        raise TypeError(f"{handler.name} takes one record at a time: ask outcome(), or give it bulk=.")
    if isinstance(values, str | bytes | Mapping | Message):
        raise TypeError("outcomes takes a list of values; ask outcome() about one.")
    given = list(values)
    if not 1 <= len(given) <= handler.bulk:
        raise ValueError(
            f"{handler.name} takes 1 to {handler.bulk:,} records in one call; it was given {len(given):,}."
        )
    refuse_loop(handler)
    messages = [make_message(handler, value, attempt, None, ()) for value in given]
    return run_bulk(handler, given, messages, failing_for)


def run_bulk(
    handler: HandlerTask[..., Any], values: list[Any], messages: list[Message], failing_for: float
) -> list[Outcome]:
    """Call a bulk handler as a worker does (tasks/execution/bulk_run.py), and return what becomes of each message."""
    ended: dict[int, Outcome] = {}
    parts: list[list[int]] = [[*range(len(messages))]]
    with _running(handler, messages[0]) as run:
        while parts:
            part = parts.pop(0)
            call = BulkCall([replace(messages[place]) for place in part], {})
            returned, error = _call_bulk(handler, call, run)
            outcome = read_bulk_outcome(
                len(part),
                error,
                set_aside=call.set_aside,
                blamed=call.blamed,
                committed=call.committed,
                of_all=error is not None and _concerns_all(handler, call, error),
            )
            for place, message in enumerate(call.messages):
                if isinstance(value := values[part[place]], Message):
                    object.__setattr__(value, "outbox", message.outbox)
                if place in outcome.done:
                    published = tuple(message.outbox.messages if message.outbox else ())
                    ended[part[place]] = Outcome("done", returned, error=error, published=published)
                elif place in outcome.failed:
                    fault = outcome.failed[place]
                    ended[part[place]] = _decided(handler, message, fault, run.failures, failing_for)
            parts[:0] = [[part[place] for place in again] for again in outcome.again]
    return [ended[place] for place in range(len(messages))]


def _call_bulk(handler: HandlerTask[..., Any], call: BulkCall, run: HandlerRun) -> tuple[Any, BaseException | None]:
    """Call a bulk handler once, and return its result or its error."""
    run.begin(run.failures)
    try:
        return handler.call_bulk(call), run.asked
    except BaseException as error:
        if _ends_the_test(error):
            raise
        return None, error


def _concerns_all(handler: HandlerTask[..., Any], call: BulkCall, error: BaseException) -> bool:
    first = next(message for place, message in enumerate(call.messages) if place not in call.set_aside)
    decision = decide_failure(handler.policy, error, first.attempts.failed, message=first)
    return concerns_all(error, decision, blames=bool(call.blamed))


def outcome_of(
    handler: HandlerTask[..., Any],
    error: BaseException,
    value: Any = None,
    *,
    attempt: int = 1,
    failing_for: float = 0.0,
    key: bytes | None = None,
    headers: tuple[Header, ...] = (),
    breaker_open: bool = False,
) -> Outcome:
    """Return what would become of a delivery whose handler raised this error; the handler does not run.

    Parameters:
        error: what the handler would have raised.
        value: of the record, for a `retry_when` that looks at it; as for `outcome`.
        breaker_open: whether the handler was the trial request of an open circuit breaker.
        handler, attempt, failing_for, key, headers: as for `outcome`.

    Raises:
        TypeError: the first argument is no handler, or the handler's codec reads bytes and the value is none.
        ValueError: `breaker_open` is given for a handler without a breaker.
    """
    check_handler(handler, breaker_open)
    message = make_message(handler, value, attempt, key, headers)
    with _running(handler, message) as run:
        return _decided(handler, message, error, run.failures, failing_for, breaker_open)


def unique_name(
    handler: HandlerTask[..., Any], value: Any, *, key: bytes | None = None, headers: tuple[Header, ...] = ()
) -> str | None:
    """Return the name that a handler's `unique_by` finds in a record; `None`: it has none, so it always runs.

    Bytes that are no UTF-8 are written as `\\xff`.

    Parameters:
        handler, value, key, headers: as for `outcome`.

    Raises:
        TypeError: the first argument is no handler, or its codec reads bytes and the value is none.
        ValueError: the handler has no `unique_by`.
        DeadLetter: what was found is no name; a worker makes it a dead letter.
        Exception: what the handler's function raises.
    """
    check_handler(handler, False)
    if handler.unique is None:
        raise ValueError(f"{handler.name} names no messages: give it unique_by=.")
    name = handler.find_unique_name(make_message(handler, value, 1, key, headers))
    return None if name is None else name.decode("utf-8", "backslashreplace")


def limit_key(
    handler: HandlerTask[..., Any], value: Any, *, key: bytes | None = None, headers: tuple[Header, ...] = ()
) -> str | None:
    """Return the key that the `by` of a handler's limit finds in a record; `None`: it has none.

    Bytes that are no UTF-8 are written as `\\xff`.

    Parameters:
        handler, value, key, headers: as for `outcome`.

    Raises:
        TypeError: the first argument is no handler, or its codec reads bytes and the value is none.
        ValueError: the handler has no limit.
        DeadLetter: what was found is no key; a worker makes it a dead letter.
        Exception: what the function raises.
    """
    check_handler(handler, False)
    if handler.limit is None:
        raise ValueError(f"{handler.name} has no limit: give it one with limit=.")
    found = handler.limit.find_key(make_message(handler, value, 1, key, headers))
    return None if found is None else found.decode("utf-8", "backslashreplace")


def check_handler(handler: Any, breaker_open: bool) -> None:
    if not isinstance(handler, HandlerTask):
        name = getattr(handler, "__qualname__", None) or repr(handler)
        raise TypeError(f'{name} is no handler: put @handler("topic") on the function, and give what that returns.')
    if breaker_open and handler.breaker is None:
        raise ValueError(f"{handler.name} has no breaker that could be open: give it one with breaker=.")


def refuse_loop(handler: HandlerTask[..., Any]) -> None:
    if inspect.iscoroutinefunction(handler.run) and _in_loop():
        raise RuntimeError(
            f"{handler.name} is async, and outcome() runs it on a loop of its own, but one runs here already: "
            "call outcome() from a test that is not async."
        )


def _ends_the_test(error: BaseException) -> bool:
    """Return whether an exception is about the test and not about the handler's work.

    `pytest.fail` and `pytest.skip` raise exceptions that are no `Exception`, as Ctrl-C does. A worker retries
    `SystemExit`, `GeneratorExit` and a cancelled coroutine, so these are outcomes.
    """
    if isinstance(error, SystemExit | GeneratorExit | asyncio.CancelledError):
        return False
    return isinstance(error, AssertionError) or not isinstance(error, Exception)


def make_message(
    handler: HandlerTask[..., Any], value: Any, attempt: int, key: bytes | None, headers: tuple[Header, ...]
) -> Message:
    if isinstance(value, Message):
        message = value
    else:
        topic = next(iter(handler.source_topics), "test")
        body = _bytes(handler, value)
        message = Message(topic, 0, next(_OFFSETS), key=key, value=body, headers=headers, origin=_ORIGIN)
    delivery = message.delivery or f"{message.coordinates}:{handler.name}"
    return replace(message, attempt=attempt, attempts=Attempts(failed=attempt - 1), delivery=delivery)


def _decided(
    handler: HandlerTask[..., Any],
    message: Message,
    error: BaseException,
    failures: int,
    age: float,
    breaker_open: bool = False,
) -> Outcome:
    faults: list[str] = []
    waits = _waits(handler)
    decision = decide_failure(
        handler.policy, error, failures, age, real=waits.real, message=message, report=faults.append
    )
    fault = "; ".join(faults)
    if breaker_open and handler.breaker is not None and handler.breaker.says(error, decision) != "nothing":
        return Outcome("wait", error=error, fault=fault)
    return replace(_outcome(decision, error, waits), fault=fault)


def _waits(handler: HandlerTask[..., Any]) -> TierWaits:
    """The waits of a handler's deliveries, by the settings of its app: the shorter are Celery's, the longer Kafka's."""
    # Addresses may be missing or wrong: nothing here connects.
    file = settings.read(handler.app, os.environ)[0].file
    return TierWaits(
        file.kafka_park_after, usable_tiers(handler.policy.delays, file.kafka_park_after, file.kafka_retry_tiers)
    )


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _outcome(decision: FailureDecision, error: BaseException, waits: TierWaits) -> Outcome:
    match decision:
        case RetryDelivery(delay):
            return Outcome("retry", error=error, delay=waits.real(delay))
        case DeadLetterDelivery(reason, _):
            return Outcome("dead", error=error, reason=reason)
        case HaltTopic():
            return Outcome("halt", error=error)
        case DropDelivery():
            return Outcome("done", error=error)


def _bytes(handler: HandlerTask[..., Any], value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if handler.codec is str and isinstance(value, str):
        return value.encode()
    if handler.codec is not None:
        raise TypeError(f"the codec of {handler.name} reads bytes: give the record's bytes, and not {value!r}.")
    return to_json(value)


@contextmanager
def _running(handler: HandlerTask[..., Any], message: Message) -> Iterator[HandlerRun]:
    """Run the handler as in a worker, with the same `self.request` and `self.retry()`, but without jitter."""
    task: Any = handler
    task.push_request(
        id=message.delivery,
        headers={HEADER: {}},
        called_directly=False,
        retries=message.attempt - 1,
    )
    # On the instance, over the class's own.
    task.policy = replace(task.policy, jitter=False)
    try:
        with HandlerRun(handler, failures=message.attempts.failed) as run:
            yield run
    finally:
        del task.policy
        task.pop_request()
