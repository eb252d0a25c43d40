"""The login of a Redis by a function, and a handler that shares a limit and a breaker with others."""

import json
import os
from pathlib import Path
from typing import Any

from tasks import Breaker, Limit, Message, handler
from tests.handlers.notes import note, topic

bank = Breaker("bank", failures=2, probe_every=1, ramp=1)


def login() -> tuple[str, str]:
    """User and password, as the file says that TEST_LOGIN names."""
    user, password = json.loads(Path(os.environ["TEST_LOGIN"]).read_text())
    return user, password


@handler(topic("shared"), name="shared", breaker=bank, limit=Limit("bank", per_second=200), retry_delays=(0.5,) * 20)
def shared(order: Any, message: Message) -> None:
    """`{"fail": n}` fails n times."""
    if message.attempt <= order.get("fail", 0):
        raise ConnectionError("as it says")
    note("shared", message, order)
