"""The successor of a message whose task did not end by itself: a delayed copy, or its burial.

Both are *successors*: messages that take the place of one that a worker holds. This module only writes them
down; lossless/worker/message_replacement.py puts them into the broker.
"""

import json
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal, TypedDict

from celery import Celery
from celery.utils import uuid
from kombu.serialization import dumps
from kombu.utils.json import dumps as kombu_json

#: Header: milliseconds since the epoch at which a worker first did not know the message's task.
UNKNOWN_SINCE = "unknown_since"
MESSAGE_LENGTH = 2_000
TRACEBACK_LENGTH = 16_000

Reason = Literal[
    "poison",  # its processes died too often: killed, out of memory, exited, over the hard time limit
    "rejected",  # the task raised Reject(requeue=False)
    "failed",  # it raised, and Task.on_failure did not get through
    "revoked",  # by remote control, running or waiting
    "expired",  # its `expires` passed before it ran
    "unknown_task",  # no such task here
    "invalid",  # headers or arguments that no task could run with, or content that is not accepted
    "undecodable",  # a body or an envelope that cannot be read
]


class Burial(TypedDict):
    """The one argument of the burial task: plain JSON, whatever the message was.

    `headers`: Celery's own and the custom ones. `body`: base64 of the body's bytes, after decompression.
    `raw`: base64 of the entry as it lay in the queue, where it was not even a message; None otherwise.
    `lost`, `restored`: how many processes, and how many whole workers, went down after they had begun with it.
    `failed_at`: milliseconds since the epoch. The error is cut to 2,000 characters of message and the last
    16,000 of traceback.
    """

    task: str | None
    id: str | None
    queue: str | None
    headers: dict[str, Any]
    body: str | None
    content_type: str | None
    content_encoding: str | None
    raw: str | None
    reason: Reason
    error_class: str
    error_message: str
    error_traceback: str
    lost: int
    restored: int
    failed_at: int


@dataclass(frozen=True)
class BurialFailure:
    """An error as text."""

    name: str
    message: str
    traceback: str = ""

    @classmethod
    def of(cls, error: BaseException, traceback: str = "") -> "BurialFailure":
        return cls(type(error).__name__, _text_of(error), traceback)


@dataclass(frozen=True)
class Successor:
    """A message to put in the place of another.

    `queue`: where it goes on lossless.transport, None for the queue that the other came from; `exchange` and
    `routing_key`: what it says of itself, and how it is published on kombu's own transport. `eta`: seconds since the
    epoch, None for at once. `gate`: of lossless.transport, before what it keeps that was never taken; `first`: before
    all.
    """

    exchange: str
    routing_key: str
    body: Any
    content_type: str | None
    content_encoding: str | None
    headers: dict[str, Any]
    properties: dict[str, Any] = field(default_factory=dict)
    queue: str | None = None
    eta: float | None = None
    why: str = ""
    gate: str | None = None
    first: bool = False


def read_count(headers: object, name: str) -> int:
    """Return a counter in a message's headers; anything else there counts as 0."""
    value = headers.get(name) if isinstance(headers, Mapping) else None
    return value if type(value) is int and value > 0 else 0


def make_burial(
    message: Any, reason: Reason, failure: BurialFailure, *, changed: Mapping[str, Any] = MappingProxyType({})
) -> Burial:
    """Return the burial of a message as kombu received it, whatever its headers and body are.

    Parameters:
        changed: what goes over its headers.
    """
    headers = {**message.headers, **changed} if isinstance(message.headers, Mapping) else {"headers": message.headers}
    body = message.body.encode("utf-8", "surrogatepass") if isinstance(message.body, str) else message.body
    return Burial(
        task=_name(headers.get("task")),
        id=_name(headers.get("id")),
        queue=_name(message.delivery_info.get("routing_key")),
        headers=_plain(headers),
        body=None if body is None else b64encode(bytes(body)).decode(),
        content_type=_name(message.content_type),
        content_encoding=_name(message.content_encoding),
        raw=None,
        lost=read_count(headers, "lost"),
        restored=read_count(headers, "restored"),
        **_make_reason(reason, failure),
    )


def make_raw_burial(raw: bytes, queue: str, failure: BurialFailure) -> Burial:
    """Return the burial of a queue entry that is no message at all."""
    return Burial(
        task=None,
        id=None,
        queue=queue,
        headers={},
        body=None,
        content_type=None,
        content_encoding=None,
        raw=b64encode(raw).decode(),
        lost=0,
        restored=0,
        **_make_reason("undecodable", failure),
    )


def get_burial_task(app: Celery) -> str:
    """Return the name of the task that buries: the setting `burial_task`."""
    return str(app.conf.get("burial_task", "tasks.bury"))


def make_burial_message(app: Celery, burial: Burial) -> Successor:
    """Return the Celery message that calls the burial task, for the queue that Celery's routes give it."""
    name = get_burial_task(app)
    args = (burial,)
    routed: Any = app.amqp.router.route({}, name, args, {}).get("queue") or app.amqp.default_queue
    queue = str(getattr(routed, "name", routed))
    subject = f"({burial['reason']} {burial['task']}[{burial['id']}],)"
    message = app.amqp.as_task_v2(uuid(), name, args, {}, argsrepr=subject, kwargsrepr="{}", ignore_result=True)
    content_type, content_encoding, body = dumps(message.body, "json")
    return Successor(
        exchange="",
        routing_key=queue,
        body=body,
        content_type=content_type,
        content_encoding=content_encoding,
        headers=message.headers,
        properties={"delivery_mode": 2, "correlation_id": message.headers["id"]},
        queue=queue,
        why=f"buried as {burial['reason']}: {burial['error_class']}: {burial['error_message'][:200]}",
    )


def make_comeback(message: Any, pause: float, why: str, **changed: Any) -> Successor:
    """Return a copy of `message` that is due in `pause` seconds and has `changed` over its headers.

    It keeps id, arguments, options, custom headers, gates and priority; the body's bytes are those received. It is
    marked as redelivered, as what a transport puts back is.
    """
    due = time.time() + pause
    headers = dict(message.headers)
    headers.pop("compression", None)  # kombu decompressed the body on receipt (kombu/message.py)
    headers.pop("redelivered", None)  # the transport's mark, which would become a custom header
    headers.pop(UNKNOWN_SINCE, None)  # whoever sends it back for another reason knows its task
    headers.update(changed, eta=datetime.fromtimestamp(due, UTC).isoformat())
    kept = ("priority", "correlation_id", "reply_to", "delivery_mode", "gates")
    return Successor(
        exchange=message.delivery_info.get("exchange") or "",
        routing_key=message.delivery_info.get("routing_key") or "",
        body=message.body,
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        headers=headers,
        properties={key: message.properties[key] for key in kept if key in message.properties}
        | {"delivery_info": {"redelivered": True}},
        eta=due,
        why=why,
    )


class _BurialReason(TypedDict):
    reason: Reason
    error_class: str
    error_message: str
    error_traceback: str
    failed_at: int


def _make_reason(reason: Reason, failure: BurialFailure) -> _BurialReason:
    return _BurialReason(
        reason=reason,
        error_class=failure.name,
        error_message=failure.message[:MESSAGE_LENGTH],
        error_traceback=failure.traceback[-TRACEBACK_LENGTH:],
        failed_at=int(time.time() * 1000),
    )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # an exception's own __str__ may raise
        return f"(its text could not be made: {type(broken).__name__})"


def _name(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else repr(value)


def _plain(headers: Mapping[str, Any]) -> dict[str, Any]:
    # As kombu writes them: json alone knows no datetime. Its markers must not be decoded a second time.
    try:
        plain: dict[str, Any] = json.loads(kombu_json(dict(headers)))
    except (TypeError, ValueError):
        plain = {str(key): repr(value) for key, value in headers.items()}
    return {key: repr(value) if "__type__" in json.dumps(value) else value for key, value in plain.items()}
