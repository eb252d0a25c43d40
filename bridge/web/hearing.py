"""What a page says if it is known: asked beside the pages, which do not wait for a server that is silent."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")

#: Seconds between two questions; and for which a page waits for the answer.
ASK_EVERY: Final = 5.0
WITHIN: Final = 0.3


@dataclass
class Hearing(Generic[T]):
    """Asks from a thread of its own, one at a time, and only while pages ask.

    Parameters:
        ask: may take as long as a server is silent; raises nothing.
        unknown: what is said before the first answer.
    """

    ask: Callable[[], T]
    unknown: T
    _heard: T = field(init=False, repr=False)
    _asked: float = field(default=float("-inf"), init=False)
    _runs: bool = field(default=False, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False, repr=False)

    def __post_init__(self) -> None:
        self._heard = self.unknown

    def latest(self) -> T:
        """The last answer; `unknown` where there was none yet. Who has it asked again waits a moment for it."""
        with self._changed:
            if not self._runs and time.monotonic() - self._asked >= ASK_EVERY:
                self._runs, self._asked = True, time.monotonic()
                threading.Thread(target=self._run, name="hearing", daemon=True).start()
                self._changed.wait_for(lambda: not self._runs, WITHIN)
            return self._heard

    def _run(self) -> None:
        heard = self.unknown
        try:
            heard = self.ask()
        finally:
            with self._changed:
                self._heard, self._runs, self._asked = heard, False, time.monotonic()
                self._changed.notify_all()
