"""The archive: a file of compressed JSON lines, in parts that are whole on its disk one after another."""

import gzip
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from bridge.errors import NotArchived


class Archive:
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
