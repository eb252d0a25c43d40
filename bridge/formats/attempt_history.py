"""The last attempts at a delivery, one by one, as it carries them on until it is done or a dead letter (pure).

An attempt that succeeds leaves nothing: what is done at once has no history. In a history each attempt is a list that
leaves out what is as in the one before it, so that twelve attempts that failed alike take some hundred bytes.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from bridge.errors import UnreadableJson
from bridge.formats.failure import cut
from bridge.formats.untrusted_json import is_time, parse_json

#: Most attempts of a history: the first one and the last ones.
MOST_ATTEMPTS: Final = 16
#: Most characters of an error, of a worker's name, of a version; and of a history as text.
MAX_ERROR: Final = 160
MAX_WORKER: Final = 80
MAX_VERSION: Final = 40
MAX_TEXT: Final = 6_000

FAILED: Final = "failed"
POSTPONED: Final = "postponed"
LOST: Final = "lost"
_ENDS: Final = (FAILED, POSTPONED, LOST)


class AttemptNote(NamedTuple):
    """One attempt at a delivery.

    Attributes:
        run: its number; the first one is 1.
        ended_at: ms since the epoch.
        took: ms; `None`: that is not known, as of a process that died.
        error: class and message, cut.
        worker: the name of the Celery worker; empty: it is not known.
        version: of the handler's code; empty: it is not known.
        end: "failed", "postponed" (it spent no retry) or "lost" (its process died).
    """

    run: int
    ended_at: int
    took: int | None
    error: str
    worker: str = ""
    version: str = ""
    end: str = FAILED

    @property
    def duration(self) -> str:
        """Return how long it took: `170 ms`, `1.2 s`, `3.5 min`; empty: that is not known."""
        if self.took is None:
            return ""
        if self.took < 1_000:
            return f"{self.took} ms"
        return f"{self.took / 1_000:.1f} s" if self.took < 60_000 else f"{self.took / 60_000:.1f} min"


History = tuple[AttemptNote, ...]


def add_attempt(history: History, note: AttemptNote) -> History:
    """Return a history with one more attempt: if they are too many, without the oldest but for the first."""
    short = note._replace(
        error=cut(note.error, MAX_ERROR), worker=note.worker[-MAX_WORKER:], version=note.version[:MAX_VERSION]
    )
    kept = (*history, short)
    return kept if len(kept) <= MOST_ATTEMPTS else (kept[0], *kept[1 - MOST_ATTEMPTS :])


def pack_history(history: History) -> list[list[Any]]:
    """Return a history as lists, each without what is as in the one before it."""
    found = []
    before: Sequence[Any] = [None] * len(AttemptNote._fields)
    for note in history:
        # The first three are numbers, which differ.
        row = [*note[:3], *(None if new == old else new for new, old in zip(note[3:], before[3:], strict=True))]
        while row[-1] is None and len(row) > 3:
            row.pop()
        found.append(row)
        before = note
    return found


def unpack_history(rows: Any) -> History:
    """Return the history that `pack_history` packed; without what is none of it. Never raises."""
    found: list[AttemptNote] = []
    for row in rows[:MOST_ATTEMPTS] if isinstance(rows, list | tuple) else ():
        if (note := _read_note(row, found[-1] if found else AttemptNote(0, 0, None, ""))) is None:
            break
        found.append(note)
    return tuple(found)


def _read_note(row: Any, before: AttemptNote) -> AttemptNote | None:
    if not isinstance(row, list | tuple) or not 3 <= len(row) <= len(AttemptNote._fields):
        return None
    run, ended_at, took, *texts = row
    numbers = all(type(each) is int and each >= 0 for each in (run, ended_at, 0 if took is None else took))
    if not numbers or not is_time(ended_at / 1000) or not all(each is None or isinstance(each, str) for each in texts):
        return None
    padded = [*texts, None, None, None, None][:4]
    error, worker, version, end = (old if new is None else new for new, old in zip(padded, before[3:], strict=True))
    note = AttemptNote(run, ended_at, took, cut(error, MAX_ERROR), worker[:MAX_WORKER], version[:MAX_VERSION], end)
    return note if end in _ENDS else None


def write_history(history: History) -> str:
    """Return a history as ASCII text for a header; empty if there is none. What is too long loses its oldest."""
    while history:
        text = json.dumps(pack_history(history), separators=(",", ":"))
        if len(text) <= MAX_TEXT:
            return text
        history = (history[0], *history[2:]) if len(history) > 1 else ()
    return ""


def read_history(text: str) -> History:
    """Return the history of a header, which any program may have written. Never raises."""
    if not text or len(text) > MAX_TEXT:
        return ()
    try:
        return unpack_history(parse_json(text))
    except UnreadableJson:
        return ()
