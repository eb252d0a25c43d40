"""Testing a handler without Kafka, Redis and workers: what would become of a record, at any attempt.

    from tasks.testing import outcome

    def test_a_bank_that_is_away_is_asked_again():
        assert str(outcome(charge, {"id": 1}, attempt=3)) == "retry in 4 s"

The value goes through the handler's codec, model, function and policy, as it does in a worker. `outcome_of` asks what
would become of an error, without running the handler:

        assert str(outcome_of(charge, TimeoutError(), attempt=13)) == "dead: exhausted"
"""

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic_core import to_json

from bridge.errors import AlreadySettled
from bridge.records.attempts import Attempts
from bridge.records.header import HEADER
from bridge.records.message import Header, Message
from tasks.handler import HandlerTask
from tasks.policy import Again, Bury, Decision, Drop, Halt
from tasks.running import Run


@dataclass(frozen=True, slots=True)
class Outcome:
    """What would become of a delivery; its text is one of `done`, `retry in 4 s`, `dead: permanent`, `halt`.

    Attributes:
        becomes: "done", "retry", "dead" or "halt".
        returned: what the handler returned.
        error: what it raised, or what its value does not decode for.
        delay: seconds until the retry; where there is jitter, the longest that it may be.
        reason: of the dead letter, as in its header `reason`.
        fault: why an answer of the handler's `retry_when` was not taken, so that the options decided; empty if none
            was refused.
    """

    becomes: Literal["done", "retry", "dead", "halt"]
    returned: Any = None
    error: BaseException | None = None
    delay: float | None = None
    reason: str | None = None
    fault: str = ""

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
) -> Outcome:
    """Run a handler on one record, and say what would become of the delivery.

    Parameters:
        handler: what `@handler` made.
        value: bytes as they would lie in Kafka; `None` for a tombstone; any other value is written as JSON (as text,
            where the handler has `codec=str`); or a whole `Message`.
        attempt: which run of the handler it is; all before it have failed, and spent a retry each.
        failing_for: seconds since the first of them, for `give_up_after`.
        key, headers: of the record.

    Raises:
        TypeError: the handler's codec reads bytes, and the value is none.
        RuntimeError: the handler is async, and a loop runs here already: call this from a test that is not.
    """
    if inspect.iscoroutinefunction(handler.run) and _in_loop():
        raise RuntimeError(
            f"{handler.name} is async, and outcome() runs it on a loop of its own, but one runs here already: "
            "call outcome() from a test that is not async."
        )
    message = _message(handler, value, attempt, key, headers)
    with _running(handler, message) as run:
        try:
            returned = handler.call(message)
            if run.asked is not None:
                raise run.asked
        except AlreadySettled as error:
            return Outcome("done", error=error)
        except BaseException as error:
            return _decided(handler, message, error, run.failures, failing_for)
    return Outcome("done", returned)


def outcome_of(
    handler: HandlerTask[..., Any],
    error: BaseException,
    value: Any = None,
    *,
    attempt: int = 1,
    failing_for: float = 0.0,
    key: bytes | None = None,
    headers: tuple[Header, ...] = (),
) -> Outcome:
    """Say what would become of a delivery whose handler raised this error; the handler does not run.

    Parameters:
        error: what the handler would have raised.
        value: of the record, for a `retry_when` that looks at it; as for `outcome`.
        handler, attempt, failing_for, key, headers: as for `outcome`.

    Raises:
        TypeError: the handler's codec reads bytes, and the value is none.
    """
    message = _message(handler, value, attempt, key, headers)
    with _running(handler, message) as run:
        return _decided(handler, message, error, run.failures, failing_for)


def _message(
    handler: HandlerTask[..., Any], value: Any, attempt: int, key: bytes | None, headers: tuple[Header, ...]
) -> Message:
    if isinstance(value, Message):
        message = value
    else:
        topic = next(iter(handler.source_topics), "test")
        message = Message(topic, 0, 0, key=key, value=_bytes(handler, value), headers=headers)
    delivery = message.delivery or f"{message.coordinates}:{handler.name}"
    return replace(message, attempt=attempt, attempts=Attempts(failed=attempt - 1), delivery=delivery)


def _decided(
    handler: HandlerTask[..., Any], message: Message, error: BaseException, failures: int, age: float
) -> Outcome:
    faults: list[str] = []
    decision = handler.policy.decide(error, failures, age, message=message, report=faults.append)
    return replace(_outcome(decision, error), fault="; ".join(faults))


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _outcome(decision: Decision, error: BaseException) -> Outcome:
    match decision:
        case Again(delay):
            return Outcome("retry", error=error, delay=delay)
        case Bury(reason, _):
            return Outcome("dead", error=error, reason=reason)
        case Halt():
            return Outcome("halt", error=error)
        case Drop():
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
def _running(handler: HandlerTask[..., Any], message: Message) -> Iterator[Run]:
    """As in a worker, so that `self.request` and `self.retry()` are what they are there; and without jitter."""
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
        with Run(handler, failures=message.attempt - 1) as run:
            yield run
    finally:
        del task.policy
        task.pop_request()
