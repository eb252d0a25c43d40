"""Which delivery each process of a worker runs, and for how long: for `bridge status`, read in the main process."""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from bridge.records.header import Contents
from tasks import progress

#: Deliveries that a worker announces: those that have run longest.
SHOWN: Final = 5
#: Seconds from which on a run is announced.
LONG: Final = 5.0


class ProcessActivity:
    """What the processes of this worker run.

    A message may carry a batch, whose processes note which of its deliveries runs: that one began when it was first
    seen to run, or a moment before.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._seen: dict[tuple[int, str], tuple[object, float]] = {}

    def look(self, requests: Iterable[Any]) -> list[dict[str, Any]]:
        """Return the deliveries that have run longest: handler, record, process and seconds.

        Parameters:
            requests: Celery's, of what the worker has.
        """
        now = self._clock()
        known, self._seen = self._seen, {}
        found = []
        for request in requests:
            pid, began = request.worker_pid, request.time_start
            contents = Contents.of(request.message.headers or {})
            if not pid or not began or contents is None or not contents.offsets:
                continue
            offset = contents.offsets[0]
            if len(contents.offsets) > 1:
                notes = progress.notes_of(int(pid), str(request.id))
                place = (int(pid), str(request.id))
                state = (len(notes.done), notes.running)
                before = known.get(place)
                began = before[1] if before is not None and before[0] == state else (began if before is None else now)
                self._seen[place] = (state, began)
                offset = offset if notes.running is None else notes.running
            record = f"{contents.topic}-{contents.partition}-{offset}"
            seconds = max(0.0, now - began)
            if seconds >= LONG:
                found.append({"handler": request.name, "record": record, "pid": int(pid), "seconds": round(seconds, 1)})
        return sorted(found, key=lambda each: -each["seconds"])[:SHOWN]
