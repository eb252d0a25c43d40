"""What took a process, in words, and when: it goes along with the message that the process ran (pure)."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from billiard.exceptions import TimeLimitExceeded

#: The header of a message that says what took its processes, and when: the last `KEPT` of them, the first in front.
HISTORY: Final = "losses"
KEPT: Final = 10
#: How a cause begins that is a hard time limit.
TIME_LIMIT: Final = "hard time limit"

#: billiard's words, and Celery's, around the one thing that they say (billiard/pool.py, `mark_as_worker_lost`).
_EXITED: Final = re.compile(r"Worker exited prematurely: (.*?)(?: Job: \d+)?\.?$", re.DOTALL)


def cause_of(error: BaseException, out_of_memory: bool = False) -> str:
    """What took a process: a signal, an exit code, its time or its memory.

    Parameters:
        error: as the pool reports it.
        out_of_memory: whether the kernel has just killed a process for want of memory.
    """
    if isinstance(error, TimeLimitExceeded):
        limit = error.args[0] if error.args else None
        return f"{TIME_LIMIT} of {limit:g} s" if isinstance(limit, int | float) else TIME_LIMIT
    if isinstance(error, MemoryError):
        return f"out of memory: {error}" if str(error) else "out of memory"
    found = _EXITED.match(str(error))
    cause = found.group(1).rstrip(".") if found else f"{type(error).__name__} {error}".strip()
    killed = out_of_memory and "SIGKILL" in cause
    return f"{cause}, out of memory: the kernel killed it" if killed else cause


def history_with(headers: Mapping[str, Any], cause: str, at: float) -> list[str]:
    """The history of a message, with what has just taken a process of it.

    Parameters:
        at: seconds since the epoch.
    """
    when = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return [*history_in(headers), f"{when} {cause}"][-KEPT:]


def history_in(headers: object) -> list[str]:
    """The history among a message's headers; what is none there is empty."""
    found = headers.get(HISTORY) if isinstance(headers, Mapping) else None
    return [each for each in found if isinstance(each, str)][-KEPT:] if isinstance(found, list) else []


def died_of(cause: str, lost: int) -> str:
    """What a message is dead of, whose processes were lost so often, the last one by this cause."""
    return cause if lost < 2 else f"{cause}; its process was lost {lost} times"
