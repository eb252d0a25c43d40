"""The public API for handlers.

Tests use `tasks.testing`, log configuration `tasks.logs`, and own transactions `bridge.formats.user_database`.

from tasks import handler, Message, DeadLetter, RetryLater, StopConsuming

@handler("orders", autoretry_for=(ConnectionError,), max_retries=5)
def charge(order):
    ...
"""

from collections.abc import Callable
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from typing_extensions import Unpack

from bridge.formats.delivery import Attempts, Message
from tasks.celery import app
from tasks.declaration.app_setup import handler_app, use
from tasks.declaration.bulk_messages import Messages
from tasks.declaration.cloud_events import CloudEvents
from tasks.declaration.handler_declaration import declare_handler
from tasks.declaration.handler_options import Options
from tasks.declaration.handler_task import HandlerTask
from tasks.declaration.message_codec import Registry
from tasks.errors import DeadLetter, HandlerError, RetryLater, StopConsuming
from tasks.policy.breaker_options import Breaker
from tasks.policy.limit_options import Limit
from tasks.worker import worker_signals  # noqa: F401  (it connects the worker's signals)

__all__ = [  # noqa: RUF022  (grouped, to be read)
    # Writing handlers
    "handler",
    "Message",
    "Messages",
    "Attempts",
    "Breaker",
    "Limit",
    "CloudEvents",
    "Registry",
    # What a handler may raise
    "DeadLetter",
    "RetryLater",
    "StopConsuming",
    # The Celery side
    "HandlerError",
    "HandlerTask",
    "Options",
    "app",
    "use",
]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def handler(
    *topics: str, bind: Literal[True], **options: Unpack[Options]
) -> Callable[[Callable[Concatenate[Any, P], R]], HandlerTask[P, R]]: ...


@overload
def handler(
    *topics: str, bind: Literal[False] = ..., **options: Unpack[Options]
) -> Callable[[Callable[P, R]], HandlerTask[P, R]]: ...


def handler(*topics: str, **options: Any) -> Callable[[Callable[..., Any]], HandlerTask[..., Any]]:
    """Make a function the handler of one or more topics: a Celery task that gets each record's value.

    Parameters:
        topics: names of Kafka topics.
        options: every option of a Celery task, and:

            retry_delays: seconds before each retry; its length is the number of retries.
            retry_backoff_multiplier: the growth of the backoff from retry to retry, 1 or more (2).
            dead_letter_for: exception classes that go to the dead letters at once.
            stop_for: exception classes that halt the topic.
            retry_when: a function of message, error and attempts that answers with seconds until the retry, with
                `DeadLetter`, or with `None`: the other options decide.
            breaker: the `Breaker` of a dependency; while it is open the deliveries wait.
            limit: a `Limit` on how many deliveries start in a second and run at once, in all workers of the group.
            unique_by: what names a message: `"header:message_id"`, `"field:order.id"` or a function of the message; a
                second record with the same name is done without a run.
            unique_for: seconds for which a name is known after its record was done (3600).
            batch: how many deliveries one Celery task may carry ("auto": as many as take about 50 ms).
            concurrency: how many deliveries of an `async def` handler a process runs at once (1; "auto": as many as
                really do more, at most 100).
            bulk: how many messages one call of the function may take: it gets a list of values, and `Messages`.
            codec: `None` for JSON, `bytes`, `str`, a callable of the value's bytes, `Registry()` for values that
                a schema of a schema registry wrote, or `CloudEvents()`.
            upgrade: a function of a decoded value of an older model, called if it does not validate; it returns the
                value for today's model.
            give_up_after: seconds from the first failure; no retry starts later.
            aliases: names that the handler had before: deliveries in flight under them still run.

    Raises:
        HandlerError: an option does not exist or is out of range, a name is taken, the function is a generator, or it
            takes other arguments than the value and, if it asks for it, `message`.

    Without options every exception is retried 12 times, from 1 s, doubling, at most 10 min, with jitter; a
    value that does not decode or validate goes to the dead letters at once. An `async def` is awaited.
    """
    return declare_handler(handler_app(), topics, options)
