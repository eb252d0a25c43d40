"""What the live parts of several pages show alike: asked once for all of them."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

Kept = TypeVar("Kept")

#: Seconds for which it is good: less than lie between two snapshots of a page.
GOOD_FOR: Final = 1.5


@dataclass
class Shared(Generic[Kept]):
    """The last that was found, by any thread."""

    clock: Callable[[], float] = time.monotonic
    _found: Kept | None = field(default=None, init=False, repr=False)
    _until: float = field(default=0.0, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def found(self, ask: Callable[[], Kept], holds: Callable[[Kept], bool]) -> Kept:
        """What was found last, where that is not long ago and holds still; else it is asked for now.

        Parameters:
            holds: whether it is not known to be of the past.
        """
        with self._lock:
            if self._found is None or self.clock() >= self._until or not holds(self._found):
                self._found = ask()
                self._until = self.clock() + GOOD_FOR
            return self._found
