"""Thread pools that answer requests: a pool for each server that they wait for, and a time limit."""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, ParamSpec, TypeVar

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

from bridge.errors import AnswerTimeout

Given = ParamSpec("Given")
Found = TypeVar("Found")

#: Threads of each but the database's, which has those of Starlette.
POOL_THREADS: Final = 20
#: Seconds after which a page, or an answer of the API, is given up: more than servers that are silent take.
ANSWER_SECONDS: Final = 60.0
#: Work that goes on: an event loop keeps tasks by weak references alone.
_RUNNING: Final[set[asyncio.Future[Any]]] = set()


class WaitKind(StrEnum):
    """What an answer waits for, besides the database."""

    DATABASE = "nothing else"
    #: How the group stands, or which versions run: seconds, where Redis or Kafka is silent.
    STANDING = "standing"
    #: Kafka or the ledger themselves: 12 seconds and more.
    SERVERS = "servers"
    #: Who signs people in, of whom anybody may have it asked.
    ISSUER = "issuer"


_LIMITS: Final[RunVar[dict[WaitKind, CapacityLimiter]]] = RunVar("bridge.console.thread_pools")


async def run_in_pool(waits: WaitKind, work: Callable[Given, Found], *args: Given.args, **named: Given.kwargs) -> Found:
    """Do it in a thread, when there is one for what it waits for.

    A thread cannot be ended: one that takes too long keeps its place among the threads until it has ended by itself.

    Raises:
        AnswerTimeout: no thread came free, or the work did not end, within `WITHIN`.
    """
    task = asyncio.ensure_future(run_sync(lambda: work(*args, **named), limiter=_get_limiter(waits)))
    _RUNNING.add(task)
    task.add_done_callback(_forget_task)
    done, _ = await asyncio.wait({task}, timeout=ANSWER_SECONDS)
    if not done:
        raise AnswerTimeout(
            f"The console has no answer after {ANSWER_SECONDS:.0f} seconds. What was asked may still be done: look at "
            "the audit log before you ask for it again. If pages stay slow, see what the console's processor, its "
            "database and Kafka do."
        )
    return task.result()


def _forget_task(task: asyncio.Future[Any]) -> None:
    _RUNNING.discard(task)
    if not task.cancelled():
        # Nobody waits any more for what took too long: asyncio would log its error as never retrieved.
        task.exception()


def _get_limiter(waits: WaitKind) -> CapacityLimiter | None:
    if waits is WaitKind.DATABASE:
        return None
    # Of this event loop: a limit is no other's.
    found = _LIMITS.get({})
    if waits not in found:
        _LIMITS.set(found := {**found, waits: CapacityLimiter(POOL_THREADS)})
    return found[waits]
