"""Handlers of the tests note each of their calls in a file, so that a test sees what ran, wherever it ran."""

import json
import os
import time
from base64 import b64encode
from typing import Any

from tasks import Message


def topic(name: str) -> str:
    """A topic of this test run's own."""
    return f"{os.environ.get('TEST_PREFIX', 'test')}.{name}"


def note(handler: str, message: Message, value: Any, outcome: str = "done") -> None:
    """One line, written at once: several processes append to the file."""
    line = {
        "handler": handler,
        "coordinates": message.coordinates,
        "attempt": message.attempt,
        "attempts": message.attempts._asdict(),
        "value": value,
        "key": _text(message.key),
        "headers": [(name, _text(raw)) for name, raw in message.headers],
        "outcome": outcome,
        "time": time.time(),
        "pid": os.getpid(),
    }
    file = os.open(os.environ["TEST_RUNS"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, (json.dumps(line) + "\n").encode())
    finally:
        os.close(file)


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else b64encode(raw).decode()
