"""The retention of ended letters: archived to a file, then deleted.

A crash between the two writes a letter to the archive again, and an import takes each once.
"""

import gzip
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from bridge.deadletters.db.database import Database
from bridge.deadletters.db.letter_table import find_letters_ended_before, purge_letters
from bridge.deadletters.db.letter_transfer import fit_in_memory, read_whole_letters
from bridge.deadletters.inspection.letter_file import write_letter_line
from bridge.errors import NotArchived

if TYPE_CHECKING:
    from bridge.deadletters.dead_letter_service import DeadLetterService


class LetterArchive:
    """A new file in a folder, made with its first part; both are made where they are missing.

    Each process, and each time, has a file of its own: two that write into one would tear each other's parts, and
    what stands behind a torn part cannot be read. What a crash tears is the end of a file that nobody adds to.

    Parameters:
        now: Unix time, for the name.
    """

    def __init__(self, folder: str, now: float) -> None:
        at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
        self.path = Path(folder) / f"deadletters-{at}-{secrets.token_hex(4)}.jsonl.gz"
        self._file: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)

    def write(self, lines: Iterable[str]) -> None:
        """Add lines; once this returns they are on the disk.

        Raises:
            NotArchived: they are not, or not all of them.
        """
        part = gzip.compress("".join(f"{line}\n" for line in lines).encode(), 6)
        try:
            self._write(part)
        except OSError as error:
            raise NotArchived(
                f"{self.path} could not be written ({error.strerror or error}): what was to go there stays in the dead "
                "letters' database. See to the folder, or name another in kafka_deadletters_archive."
            ) from error

    def _write(self, part: bytes) -> None:
        if self._file is None:
            self._file = _made(self.path)
        before = os.fstat(self._file).st_size
        try:
            left = memoryview(part)
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError:
            # Half a part would hide what the next try writes behind it.
            with suppress(OSError):
                os.ftruncate(self._file, before)
            raise


def _made(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Payloads are nobody else's to read.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return file


logger = logging.getLogger(__name__)

#: Most letters of one transaction, and of one part of an archive; fewer where their values are large.
AT_ONCE: Final = 100
DAY: Final = 86_400_000


def purge_ended_letters(
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
    with nullcontext() if archive is None else LetterArchive(archive, now()) as kept:
        while not stopped():
            with database.reading() as connection:
                ids: Sequence[int] = find_letters_ended_before(connection, before, AT_ONCE)
                if kept is not None:
                    ids = fit_in_memory(connection, ids)
                rows = read_whole_letters(connection, ids) if kept is not None else []
            if not ids:
                break
            if kept is not None:
                kept.write(map(write_letter_line, rows))
            with database.writing() as connection:
                gone += purge_letters(connection, ids, before)
    return gone


def apply_retention(desk: "DeadLetterService", stopping: threading.Event) -> None:
    """The recorder's duty: what its settings say, until it is told to end."""
    file = desk.settings.file
    gone = purge_ended_letters(
        desk.database, file.kafka_deadletters_days, file.kafka_deadletters_archive, stopped=stopping.is_set
    )
    if gone:
        where = file.kafka_deadletters_archive or "nothing (kafka_deadletters_archive)"
        logger.info("%d dead letters that ended %g days ago went to %s.", gone, file.kafka_deadletters_days, where)
