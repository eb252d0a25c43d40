"""Cleaning up: what has ended long ago leaves the database, into an archive or to nothing.

Order of acts: written to the archive, on its disk, then deleted. A crash between the two leaves lines in the archive of
letters that are still there, and that go there once more: an import takes each once.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from bridge.deadletters.files.archive import Archive
from bridge.deadletters.files.exported import line
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.leaving import ended_before, remove
from bridge.deadletters.store.whole import fitting, whole

if TYPE_CHECKING:
    from bridge.deadletters.desk import Desk

logger = logging.getLogger(__name__)

#: Most letters of one transaction, and of one part of an archive; fewer where their values are large.
AT_ONCE: Final = 100
DAY: Final = 86_400_000


def clean(
    database: Database,
    days: float,
    archive: str | None,
    now: Callable[[], float] = time.time,
    stopped: Callable[[], bool] = bool,
) -> int:
    """Let the letters go that were resolved, discarded or archived so many days ago; open and replaying ones never do.

    Parameters:
        archive: a folder into which they go, a file for each call that finds any; `None`: they go to nothing.
        stopped: asked before each transaction, of `AT_ONCE` letters: whether to leave the rest for later.

    Returns:
        how many have gone.

    Raises:
        NotArchived: the archive could not be written; what is not in it is in the database still.
        DeskUnavailable: the database did not do it.
    """
    before, gone = int(now() * 1000 - days * DAY), 0
    with nullcontext() if archive is None else Archive(archive, now()) as kept:
        while not stopped():
            with database.reading() as connection:
                ids: Sequence[int] = ended_before(connection, before, AT_ONCE)
                if kept is not None:
                    ids = fitting(connection, ids)
                rows = whole(connection, ids) if kept is not None else []
            if not ids:
                break
            if kept is not None:
                kept.write(map(line, rows))
            with database.writing() as connection:
                gone += remove(connection, ids, before)
    return gone


def clean_up(desk: "Desk", stopping: threading.Event) -> None:
    """The recorder's duty: what its settings say, until it is told to end."""
    file = desk.settings.file
    gone = clean(desk.database, file.kafka_deadletters_days, file.kafka_deadletters_archive, stopped=stopping.is_set)
    if gone:
        where = file.kafka_deadletters_archive or "nothing (kafka_deadletters_archive)"
        logger.info("%d dead letters that ended %g days ago went to %s.", gone, file.kafka_deadletters_days, where)
