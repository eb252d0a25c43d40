"""Plans in the background: what was approved, and what a process left that died, each in a thread of its own.

None waits for another. What was claimed of a lane (bridge.deadletters.plan.lanes) by a plan that was left holds back
what others have of that lane, until somebody goes on with that plan.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from threading import Event, Thread
from typing import Final

from bridge.deadletters.plans.applying import me
from bridge.deadletters.store import plans
from bridge.deadletters.store.database import Database
from bridge.errors import BridgeError, DeskUnavailable

logger = logging.getLogger(__name__)

#: Seconds between two looks for such plans.
LOOK_EVERY: Final = 1.0
#: Seconds before one is taken up again that could not be gone on with: after the first time, and at most.
AGAIN_AFTER: Final = (5.0, 60.0)
#: Does a plan, by its id, under the lease of this name.
Do = Callable[[int, str], object]


def go_on(database: Database, do: Do, stopping: Event) -> None:
    """Do all such plans beside each other until `stopping` is set, and those under way have been left."""
    taken_at: dict[int, float] = {}
    failed: Counter[int] = Counter()
    threads: list[Thread] = []
    while not stopping.is_set():
        # That the database does not answer, the recorder's other duties say.
        with suppress(DeskUnavailable):
            for id_, who in _taken(database, taken_at, failed):
                threads = [thread for thread in threads if thread.is_alive()]
                threads.append(Thread(target=_do, args=(do, id_, who, failed), name=f"plan {id_}", daemon=True))
                threads[-1].start()
        stopping.wait(LOOK_EVERY)
    for thread in threads:
        thread.join()


def _taken(database: Database, taken_at: dict[int, float], failed: Mapping[int, int]) -> Iterator[tuple[int, str]]:
    """Take the lease of those that nobody has; yield each with who has it now."""
    with database.reading() as connection:
        left = plans.abandoned(connection)
    for id_ in left:
        if id_ in taken_at and time.monotonic() - taken_at[id_] < again_after(failed.get(id_, 0)):
            continue
        who = me()
        with database.writing() as connection:
            # Another process may be faster.
            taken = plans.lease(connection, id_, who)
        if taken:
            taken_at[id_] = time.monotonic()
            yield id_, who


def again_after(failures: int) -> float:
    """For how many seconds a plan rests that so many times in a row could not be gone on with (pure)."""
    first, most = AGAIN_AFTER
    return min(most, first * float(1 << min(max(0, failures - 1), 10)))


def _do(do: Do, id_: int, who: str, failed: Counter[int]) -> None:
    try:
        do(id_, who)
        failed[id_] = 0
    except Exception as error:
        failed[id_] += 1
        # What is not ours, and so not expected, says where it comes from.
        logger.error("plan %d: %s", id_, error, exc_info=not isinstance(error, BridgeError))
