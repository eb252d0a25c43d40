"""A set of queues that are consumed together: what idle workers are noted for, and what a take looks at.

Every consumer of the same queues has the same set, under one name. Its lists are noted in Redis once, so that a take
names the set and not its lists, and one note says that a worker is idle, whatever the number of its queues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class QueueSet:
    """A set of queues.

    Attributes:
        name: the same for the same lists in the same order, and the same queues without acknowledgement.
        numbers: the number of each queue.
        lists: the keys of all lists, the highest priority of each queue first.
        queues: the queue and the key of each list, by the key as Redis answers it.
        no_ack: "1" for each queue that is consumed without acknowledgement, else "0".
        priorities: how many lists each queue has.
    """

    name: str
    numbers: dict[str, int]
    lists: list[str]
    queues: dict[bytes, tuple[str, str]]
    no_ack: str
    priorities: int


def queue_set(
    queues: Sequence[str], no_ack: Collection[str], steps: Sequence[int], list_key: Callable[[str, int], str]
) -> QueueSet:
    """Return the set of these queues.

    Parameters:
        queues: in the order in which they are served.
        no_ack: those that are consumed without acknowledgement.
        steps: the steps of priority.
        list_key: the key of the list of a queue's step.
    """
    lists = [list_key(queue, step) for step in steps for queue in queues]
    unheld = "".join("1" if queue in no_ack else "0" for queue in queues)
    name = hashlib.sha1("\0".join([unheld, *lists]).encode(), usedforsecurity=False).hexdigest()[:16]
    owners = [(queue, key) for queue, key in zip([*queues] * len(steps), lists, strict=True)]
    by_key = {key.encode(): (queue, key) for queue, key in owners}
    return QueueSet(name, {queue: n for n, queue in enumerate(queues)}, lists, by_key, unheld, len(steps))
