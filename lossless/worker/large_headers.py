"""Large headers travel in the body: AMQP's headers must fit into one frame, 131,072 bytes by RabbitMQ's default.

Redis has no such limit, and no message is changed for it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

#: The header that names those in the body, and the option of the body that has them (celery/app/amqp.py, `as_task_v2`).
MOVED: Final = "headers_in_body"
#: Bytes of all headers up to which they stay: half a frame, as the estimate leaves out how AMQP writes them.
MOST_BYTES: Final = 65_536
#: Bytes of a header from which it is moved.
LARGE: Final = 1_024


def move_large_headers(headers: Mapping[str, Any], body: Any) -> tuple[dict[str, Any], Any]:
    """Return headers that AMQP takes, and a body with those that are too large (pure).

    A body that is not that of a Celery task, as JSON, takes none: nobody would find them there.
    """
    sizes = {name: estimate_size(value) for name, value in headers.items()}
    if sum(sizes.values()) <= MOST_BYTES:
        return dict(headers), body
    try:
        args, kwargs, options = json.loads(body)
        moved = {name: headers[name] for name, size in sizes.items() if size > LARGE}
        written = json.dumps([args, kwargs, {**options, MOVED: moved}])
    except (ValueError, TypeError):
        return dict(headers), body
    return {name: value for name, value in headers.items() if name not in moved} | {MOVED: sorted(moved)}, written


def restore_large_headers(message: Any) -> None:
    """Give an arrived message the headers that it was sent with, before anybody reads them.

    Raises:
        ValueError, TypeError: its body has not what its header says.
    """
    if MOVED not in message.headers:
        return
    args, kwargs, options = json.loads(message.body)
    message.headers.update(options.pop(MOVED))
    del message.headers[MOVED]
    message.body = json.dumps([args, kwargs, options])


def estimate_size(value: Any) -> int:
    """Return about how many bytes a value takes, without writing it.

    >>> estimate_size({"rows": ["abc", b"de", 7]})
    25
    """
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Mapping):
        return sum(estimate_size(name) + estimate_size(each) for name, each in value.items())
    if isinstance(value, list | tuple):
        return sum(map(estimate_size, value))
    return 8
