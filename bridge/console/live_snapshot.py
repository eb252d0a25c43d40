"""Snapshots for live parts of pages: one for all viewers of the same thing, and none without viewers.

A stream of server-sent events ends after a minute and its page asks again, so that no proxy cuts it. It ends with the
session, too.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from bridge.console import thread_pools
from bridge.console.thread_pools import WaitKind

#: The seconds between two snapshots; the pause after one as a multiple of the time that it took (all watchers of one
#: subject cost a twenty-fifth of a core at most), and its limit in seconds; and the seconds that a stream lasts.
SNAPSHOT_PERIOD: Final = 1.0
SNAPSHOT_REST: Final = 24.0
MAX_PAUSE: Final = 10.0
STREAM_SECONDS: Final = 60.0
#: The seconds between two checks that the viewer is still signed in.
SESSION_CHECK_PERIOD: Final = 3.0
#: The seconds between two polls for the snapshot that another stream makes.
_POLL_PERIOD: Final = 0.05


class LiveSnapshot(NamedTuple):
    """The live parts of a page at one moment.

    Attributes:
        act: the version that a page acts on (bridge.deadletters.model.bulk_plan): if it has changed, the buttons of an
            open page are outdated.
        over: whether nothing will change any more by itself.
        parts: HTML by the id of its element.
        read: when its figures were read, by the clock of `LiveSnapshots`; `None`: when it was made.
    """

    act: str
    over: bool
    parts: Mapping[str, str]
    read: float | None = None


@dataclass
class _WatchedSnapshot:
    """A subject that open pages watch, with its last snapshot.

    Attributes:
        until: until when the last snapshot is fresh, seconds of the clock.
        making: whether a stream is making the next one.
    """

    watchers: int = 0
    last: LiveSnapshot | None = None
    until: float = 0.0
    making: bool = False


@dataclass
class LiveSnapshots:
    """All subjects that are watched in this process."""

    every: float = SNAPSHOT_PERIOD
    lasts: float = STREAM_SECONDS
    asked: float = SESSION_CHECK_PERIOD
    clock: Callable[[], float] = time.monotonic
    _of: dict[str, _WatchedSnapshot] = field(default_factory=dict, repr=False)
    _ending: set[asyncio.Event] = field(default_factory=set, repr=False)

    @property
    def watched(self) -> dict[str, int]:
        """Return the number of watchers of each subject."""
        return {name: each.watchers for name, each in self._of.items()}

    def end(self) -> None:
        """End all streams at shutdown, so that none is cut off."""
        for each in tuple(self._ending):
            each.set()

    async def stream(
        self,
        name: str,
        make: Callable[[], LiveSnapshot],
        pace: float = 1.0,
        waits: WaitKind = WaitKind.DATABASE,
        goes_on: Callable[[], bool] = lambda: True,
        **besides: str,
    ) -> AsyncIterator[str]:
        """Yield server-sent events: the first has all parts, each later one the changed parts, with their age.

        Parameters:
            make: makes a snapshot for all watchers of the name; runs in a thread.
            waits: the server that `make` waits for.
            pace: the factor for the pause between two snapshots.
            goes_on: whether the viewer may still see it; runs in a thread, every `SESSION_CHECK_PERIOD` seconds.
            besides: further fields of each event.
        """
        watched = self._of.setdefault(name, _WatchedSnapshot())
        watched.watchers += 1
        seen: dict[str, str] = {}
        self._ending.add(ending := asyncio.Event())
        try:
            ends = self.clock() + self.lasts
            asked = self.clock()
            while self.clock() < ends and not ending.is_set():
                if self.clock() - asked >= self.asked:
                    if not await thread_pools.run_in_pool(WaitKind.DATABASE, goes_on):
                        break
                    asked = self.clock()
                snapshot = await self._snapshot(watched, make, pace * self.every, waits)
                changed = {place: html for place, html in snapshot.parts.items() if seen.get(place) != html}
                seen |= changed
                age = 0.0 if snapshot.read is None else round(self.clock() - snapshot.read, 1)
                yield _format_event(
                    {"act": snapshot.act, "over": snapshot.over, "parts": changed, "age": age, **besides}
                )
                with suppress(TimeoutError):
                    await asyncio.wait_for(ending.wait(), pace * self.every)
        finally:
            self._ending.discard(ending)
            watched.watchers -= 1
            if not watched.watchers:
                self._of.pop(name, None)

    async def _snapshot(
        self, watched: _WatchedSnapshot, make: Callable[[], LiveSnapshot], every: float, waits: WaitKind
    ) -> LiveSnapshot:
        while True:
            if watched.last is not None and (watched.making or self.clock() < watched.until):
                return watched.last
            if not watched.making:
                break
            await asyncio.sleep(_POLL_PERIOD)
        watched.making = True
        began = self.clock()
        try:
            watched.last = await thread_pools.run_in_pool(waits, make)
        finally:
            watched.making = False
            # A tenth less, so that a stream that comes after the period does not get the previous snapshot.
            watched.until = self.clock() + max(0.9 * every, min(SNAPSHOT_REST * (self.clock() - began), MAX_PAUSE))
        return watched.last


def _format_event(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"
