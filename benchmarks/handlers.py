"""Our handlers: with no option set, one by one, and in batches of 200; a process has that of TOPIC, and no other.

It handles the topics of MORE_TOPICS too.
"""

import inspect
import os
from collections.abc import Callable
from typing import Any

from benchmarks import work
from tasks import Limit, handler

#: The storm's: one retry a second later, as the peers have it.
STORM: dict[str, Any] = {
    "retry_delays": (1,),
    "dead_letter_for": (work.PermanentError,),
    "autoretry_for": (work.TransientError,),
}

#: Topic → what is done with a record, and the handler's options.
ALL: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "plain": (work.mark, {}),
    "burst": (work.mark, {}),
    "one": (work.mark, {"batch": 1}),
    "batch": (work.mark, {"batch": 200}),
    "quiet": (work.mark_at, {}),
    "slow": (work.nap, {}),
    "wait": (work.wait, {"concurrency": "auto"}),
    "wait100": (work.wait, {"concurrency": 100}),
    "rated": (work.start, {"limit": Limit("rated", per_second=work.RATE)}),
    # Limits that hold nothing back: what they cost.
    "limited": (work.mark, {"limit": Limit("limited", per_second=100_000)}),
    "limited_key": (work.mark, {"limit": Limit("limited_key", per_second=100_000, by=lambda message: message.key)}),
    "limited_runs": (work.mark, {"limit": Limit("limited_runs", concurrency=1_000)}),
    "storm": (work.storm, STORM),
    "storm200": (work.storm, {**STORM, "batch": 200}),
    "rows": (work.insert, {}),
    "rows500": (work.insert_all, {"bulk": 500}),
    "copy500": (work.copy_all, {"bulk": 500}),
    "copy5000": (work.copy_all, {"bulk": 5000}),
}

TOPIC = os.environ["TOPIC"]
TOPICS = [TOPIC, *os.environ.get("MORE_TOPICS", "").split()]
_act, _options = ALL[TOPIC]


if inspect.iscoroutinefunction(_act):

    @handler(*TOPICS, name=f"benchmarks.{TOPIC}", **_options)
    async def handle_async(number: int) -> None:
        """What the topic's records want, of what waits."""
        await _act(number)

elif "bulk" in _options:

    @handler(*TOPICS, name=f"benchmarks.{TOPIC}", **_options)
    def handle_all(numbers: list[int]) -> None:
        """What the topic's records want, of many at once."""
        _act(numbers)

else:

    @handler(*TOPICS, name=f"benchmarks.{TOPIC}", **_options)
    def handle(number: int) -> None:
        """What the topic's records want."""
        _act(number)
