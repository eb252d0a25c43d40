"""What a queue weighs: the bytes that it takes in Redis, and what its messages carry, from a few of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import redis

from lossless.transport.permissions import is_refusal
from lossless.transport.scripts import WEIGH
from lossless.transport.stored import text

#: Messages that are looked at, spread over the whole queue; all of one that is no longer. Less where they are large.
SAMPLES = 16


class Weighed(NamedTuple):
    """What a queue weighs.

    Attributes:
        size: the bytes that its messages take, with those that wait or are set aside, as Redis estimates it from a few.
        samples: of each message that was looked at the task, and how many items it carries.
    """

    size: int
    samples: Sequence[tuple[str, int]]


def weigh(channel: Any, queue: str, lists: Sequence[str], most: int = SAMPLES) -> Weighed | None:
    """Weigh a queue of `channel`'s, of this package's transport.

    Parameters:
        lists: names of lists that messages may carry, in whose items they are counted.
        most: how many messages are looked at.

    Returns None where this Redis user may not. Raises redis-py's errors.
    """
    names = [channel.list_key(queue, step) for step in channel.priority_steps]
    keys = [*names, channel.keys.waiting(queue), *channel.aside_lists(queue)]
    # Each in its part of the queue, and somewhere there: what comes in turns is not always met with the same turn. In
    # no order: where messages are so large that only some are read, those are from all over it too.
    parts = random.sample(range(most), most)
    where = " ".join(f"{(part + random.random()) / most:.6f}" for part in parts)
    try:
        size, samples = WEIGH.run(channel.bare_client(), keys, [len(names), where, *lists])
    except redis.ResponseError as exc:
        if is_refusal(exc):
            return None
        raise
    return Weighed(int(size), [(text(task), int(count)) for task, count in samples])
