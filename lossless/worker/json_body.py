"""The body of a message in plain JSON, decoded in a tenth of the steps that kombu takes.

Celery decodes the body of each message twice, in the worker's main process and in the one that runs the task
(celery/worker/strategy.py, celery/app/trace.py).
"""

import json
from collections.abc import Callable
from typing import Any, Final

from kombu import serialization
from kombu.utils import json as kombu_json

JSON_TYPE: Final = "application/json"
_get_decoder: Final = vars(serialization)["registry"]._decoders.get


def decode_plain_json(body: object, content_type: object) -> Any:
    """Return what a body of plain JSON holds.

    `None` for any other one: of another type, with kombu's marks of types, faulty, or an application has a decoder of
    its own for JSON. kombu decodes it, and says what is wrong with it.
    """
    if content_type != JSON_TYPE or not isinstance(body, bytes) or b'"__type__"' in body:
        return None
    if _get_decoder(JSON_TYPE) is not kombu_json.loads:
        return None
    try:
        return json.loads(body.decode())
    except (ValueError, RecursionError):
        return None


def trace_decoded(
    trace: Callable[..., Any],
    task: str,
    task_id: str,
    request: dict[str, Any],
    body: object,
    content_type: object,
    encoding: object,
) -> Any:
    """Run one of Celery's traces, with a body of plain JSON decoded."""
    if (decoded := decode_plain_json(body, content_type)) is not None:
        body, content_type = decoded, None
    return trace(task, task_id, request, body, content_type, encoding)
