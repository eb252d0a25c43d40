"""The deliveries whose dead letter Kafka does not take: all of them, counted, wherever their messages wait.

One sorted set a handler, by when it was tried last; a set that is lost is filled again as they are tried again. It is
for people, and no delivery rests on it.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from bridge.ledger.client import Ledger
from bridge.ledger.pages import key

#: Seconds after its last try for which one counts: tries are a minute apart at most, and then wait in their queue.
COUNTS_FOR: Final = 1_800
#: Members of one set at most.
MOST: Final = 200_000


class Unpublished(NamedTuple):
    """How many there are of a handler, since when (Unix time by the reader's clock), and why."""

    many: int
    since: float
    error: str


def note_unpublished(
    ledger: Ledger, refused: Mapping[str, Mapping[str, str]], written: Mapping[str, Iterable[str]]
) -> None:
    """Note what Kafka did not take, and what it has taken after all.

    Parameters:
        refused: by handler, the error of each delivery.
        written: by handler, deliveries.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    with ledger.asking("note which dead letters Kafka does not take") as pipe:
        pipe.time()
        ((now, _),) = pipe.execute()
        for handler, errors in refused.items():
            tried, about = _keys(ledger, handler)
            pipe.zadd(tried, dict.fromkeys(errors, now))
            pipe.zremrangebyrank(tried, 0, -MOST - 1)
            pipe.hsetnx(about, "since", now)
            pipe.hset(about, "error", [*errors.values()][-1])
            pipe.expire(tried, COUNTS_FOR)
            pipe.expire(about, COUNTS_FOR)
        for handler, deliveries in written.items():
            if gone := [*deliveries]:
                pipe.zrem(_keys(ledger, handler)[0], *gone)
        pipe.execute()


def unpublished_of(ledger: Ledger, handlers: Iterable[str], now: float) -> dict[str, Unpublished]:
    """Return those that have any; the time since when is forgotten once there are none.

    Parameters:
        now: Unix time by the reader's clock.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    wanted = list(dict.fromkeys(handlers))
    with ledger.asking("read which dead letters Kafka does not take") as pipe:
        pipe.time()
        ((seconds, _),) = pipe.execute()
        for handler in wanted:
            tried, about = _keys(ledger, handler)
            pipe.zcount(tried, seconds - COUNTS_FOR, "+inf")
            pipe.hmget(about, "since", "error")
        rows = pipe.execute()
        found = {}
        for handler, count, (since, error) in zip(wanted, rows[::2], rows[1::2], strict=True):
            if count:
                at = now - max(0.0, seconds - float(since or seconds))
                found[handler] = Unpublished(int(count), at, (error or b"").decode(errors="replace"))
            elif since is not None:
                pipe.delete(_keys(ledger, handler)[1])
        pipe.execute()
    return found


def _keys(ledger: Ledger, handler: str) -> tuple[str, str]:
    start = key("", ledger.group, "unpublished", handler)
    return start, f"{start}:about"
