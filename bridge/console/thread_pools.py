"""Thread pools for requests: one pool for each server that a request waits for, with a time limit."""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, ParamSpec, TypeVar

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

from bridge.errors import AnswerTimeout

Args = ParamSpec("Args")
Result = TypeVar("Result")

#: Threads of each pool; requests that wait for the database alone use the pool of Starlette.
POOL_THREADS: Final = 20
#: Seconds after which a page or an API answer is given up: more than the timeouts of unavailable servers.
ANSWER_SECONDS: Final = 60.0
#: References to running work: an event loop keeps only weak ones.
_RUNNING: Final[set[asyncio.Future[Any]]] = set()


class WaitKind(StrEnum):
    """The server that an answer waits for, besides the database."""

    DATABASE = "nothing else"
    #: The status of the group, or the running versions: seconds while Redis or Kafka is unavailable.
    STATUS = "status"
    #: Kafka or the ledger itself: 12 seconds and more.
    SERVERS = "servers"
    #: The OpenID Connect issuer, which any visitor can make the console ask.
    ISSUER = "issuer"


_LIMITS: Final[RunVar[dict[WaitKind, CapacityLimiter]]] = RunVar("bridge.console.thread_pools")


async def run_in_pool(waits: WaitKind, work: Callable[Args, Result], *args: Args.args, **named: Args.kwargs) -> Result:
    """Run work in a thread of the pool for the server that it waits for.

    A thread cannot be cancelled: work that takes too long keeps its thread until it ends by itself.

    Raises:
        AnswerTimeout: no thread was free, or the work did not end, within `ANSWER_SECONDS`.
    """
    task = asyncio.ensure_future(run_sync(lambda: work(*args, **named), limiter=_get_limiter(waits)))
    _RUNNING.add(task)
    task.add_done_callback(_forget_task)
    done, _ = await asyncio.wait({task}, timeout=ANSWER_SECONDS)
    if not done:
        raise AnswerTimeout(
            f"The console has no answer after {ANSWER_SECONDS:.0f} seconds. The request may still be carried out: "
            "check the audit log before you repeat it. If pages stay slow, check the console's processor, its database "
            "and Kafka."
        )
    return task.result()


def _forget_task(task: asyncio.Future[Any]) -> None:
    _RUNNING.discard(task)
    if not task.cancelled():
        # Nobody waits any more for work that took too long: asyncio would log its error as never retrieved.
        task.exception()


def _get_limiter(waits: WaitKind) -> CapacityLimiter | None:
    if waits is WaitKind.DATABASE:
        return None
    # A limiter belongs to one event loop.
    limiters = _LIMITS.get({})
    if waits not in limiters:
        _LIMITS.set(limiters := {**limiters, waits: CapacityLimiter(POOL_THREADS)})
    return limiters[waits]
