"""The retention of ended letters: archived to a file, then deleted.

A crash between the two archives a letter twice; an import takes each letter once.
"""

import fcntl
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
from bridge.deadletters.db.letter_rows import find_letters_ended_before, purge_letters
from bridge.deadletters.db.letter_transfer import fit_in_memory, read_whole_letters
from bridge.deadletters.inspection.letter_file import write_letter_line
from bridge.errors import NotArchived

if TYPE_CHECKING:
    from bridge.deadletters.dead_letter_service import DeadLetterService


class LetterArchive:
    """A new archive file in a folder, created with its first part, as is the folder.

    Each run of each process has a file of its own: after a torn part nothing can be read, so a crash may tear only the
    end of a file.

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
        """Append lines; when this returns they are on the disk.

        Raises:
            NotArchived: not all lines could be written.
        """
        part = gzip.compress("".join(f"{line}\n" for line in lines).encode(), 6)
        try:
            self._write(part)
        except OSError as error:
            raise NotArchived(
                f"{self.path} could not be written ({error.strerror or error}): its letters stay in the dead "
                "letters' database. Check the folder, or name another in kafka_deadletters_archive."
            ) from error

    def _write(self, part: bytes) -> None:
        if self._file is None:
            self._file = _made(self.path)
            # Until its end: `bridge erase`, which replaces files, waits for it.
            fcntl.flock(self._file, fcntl.LOCK_EX)
        before = os.fstat(self._file).st_size
        try:
            left = memoryview(part)
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError:
            # Nothing after half a part could be read.
            with suppress(OSError):
                os.ftruncate(self._file, before)
            raise


def _made(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    # The file has payloads: only its owner may read it.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return file


logger = logging.getLogger(__name__)

#: Most letters of one transaction, and of one part of an archive; fewer if their values are large.
AT_ONCE: Final = 100
DAY: Final = 86_400_000


def purge_ended_letters(
    database: Database,
    days: float,
    archive: str | None,
    now: Callable[[], float] = time.time,
    stopped: Callable[[], bool] = bool,
) -> int:
    """Archive and delete letters that were resolved, discarded or archived so many days ago; never open and
    replaying ones.

    Parameters:
        archive: the folder of archive files, one for each call with letters; `None`: no archive.
        stopped: called before each transaction of `AT_ONCE` letters: whether to leave the rest for later.

    Returns:
        the number of deleted letters.

    Raises:
        NotArchived: the archive could not be written; letters that are not in it stay in the database.
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
    """Apply the retention of the settings until the recorder stops."""
    file = desk.settings.file
    gone = purge_ended_letters(
        desk.database, file.kafka_deadletters_days, file.kafka_deadletters_archive, stopped=stopping.is_set
    )
    if gone:
        where = file.kafka_deadletters_archive or "nothing (kafka_deadletters_archive)"
        logger.info("%d dead letters that ended %g days ago went to %s.", gone, file.kafka_deadletters_days, where)
