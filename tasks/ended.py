"""Which deliveries ended in this worker a moment ago: a look at them that is older says nothing any more.

A message that lies twice in its queue may be taken twice in one step, and looked at before either has run. The main
process knows what ended here, and when; other workers' ends are not known here.
"""

import math
import time
from collections import OrderedDict
from typing import Any, NamedTuple

#: Seconds for which an end is remembered: longer than a look holds (tasks/book.py).
REMEMBERED: float = 2.0


class _End(NamedTuple):
    at: float
    #: The mark that goes along with the acknowledgement: the end is known to the ledger when that is done.
    step: Any

    @property
    def told_at(self) -> float:
        return max(self.at, self.step.done_at) if self.step is not None else self.at


class Ended:
    """Ends of the last seconds, and those of which Redis has not answered yet, by the id of their message."""

    def __init__(self) -> None:
        self._ends: OrderedDict[str, _End] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, message_id: str, step: Any = None) -> None:
        """Remember that a message has ended now.

        Parameters:
            step: what is done along with its acknowledgement (lossless.transport.riding.Step).
        """
        before = self._ends.pop(message_id, None)
        if step is None and before is not None:
            step = before.step
        self._ends[message_id] = _End(time.monotonic(), step)
        self._forget()

    def since(self, message_id: str, looked_at: float) -> bool:
        """Whether a message ended after it was looked at, or its mark may not have been there when it was."""
        end = self._ends.get(message_id)
        return end is not None and looked_at <= end.told_at

    def _forget(self) -> None:
        # Two for each one that comes: what was kept in a busy second goes, and no end waits for much of it.
        for _ in range(2):
            message_id, end = next(iter(self._ends.items()))
            if time.monotonic() - end.at <= REMEMBERED:
                return
            if math.isfinite(end.told_at) and time.monotonic() - end.told_at > REMEMBERED:
                del self._ends[message_id]
            else:
                self._ends.move_to_end(message_id)
