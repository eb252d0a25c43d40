"""In which threads requests are answered: what waits for other servers has its own, and takes none of the others."""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, ParamSpec, TypeVar

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

Given = ParamSpec("Given")
Found = TypeVar("Found")

#: Threads of each but the database's, which has those of Starlette.
THREADS: Final = 20


class Waits(StrEnum):
    """What an answer waits for, besides the database."""

    DATABASE = "nothing else"
    #: How the group stands, or which versions run: seconds, where Redis or Kafka is silent.
    STANDING = "standing"
    #: Kafka or the ledger themselves: 12 seconds and more.
    SERVERS = "servers"
    #: Who signs people in, of whom anybody may have it asked.
    ISSUER = "issuer"


_LIMITS: Final[RunVar[dict[Waits, CapacityLimiter]]] = RunVar("bridge.web.threads")


async def run(waits: Waits, work: Callable[Given, Found], *args: Given.args, **named: Given.kwargs) -> Found:
    """Do it in a thread, when there is one for what it waits for."""
    return await run_sync(lambda: work(*args, **named), limiter=_limit(waits))


def _limit(waits: Waits) -> CapacityLimiter | None:
    if waits is Waits.DATABASE:
        return None
    # Of this event loop: a limit is no other's.
    found = _LIMITS.get({})
    if waits not in found:
        _LIMITS.set(found := {**found, waits: CapacityLimiter(THREADS)})
    return found[waits]
