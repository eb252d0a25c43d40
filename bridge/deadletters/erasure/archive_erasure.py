"""The letters of a person in archive files: each file that has one is written anew without it."""

import fcntl
import gzip
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bridge.deadletters.db.erasure_rows import SourceRecord
from bridge.deadletters.inspection.letter_file import read_letter_line
from bridge.deadletters.model.erasure_subject import ErasureSubject
from bridge.deadletters.model.payload_codec import PayloadCodec
from bridge.deadletters.model.stored_letter import unpack_headers
from bridge.errors import ErasureRefused, NoExport


class ArchiveSearch(NamedTuple):
    """The person's letters in archive files.

    Attributes:
        files: files that were searched.
        letters: letters of the person in them, and lines of others that quote the person, which stay.
        unread: the files that could not be read to their end.
    """

    files: int
    letters: int
    quoting: int
    unread: tuple[str, ...]


class ArchiveErasure:
    """The archive files of a folder.

    Parameters:
        sources: source records that are the person's.
    """

    def __init__(
        self, folder: str, subject: ErasureSubject, payloads: PayloadCodec, sources: set[SourceRecord]
    ) -> None:
        self._folder, self._subject, self._payloads, self._sources = Path(folder), subject, payloads, sources

    def search(self) -> ArchiveSearch:
        """Return what the files have of the person."""
        letters = quoting = 0
        unread = []
        files = self._list_files()
        for file in files:
            try:
                for line in _read_lines(file):
                    own = self._is_own(line)
                    letters += own
                    quoting += not own and self._subject.is_quoted_in(line)
            except (OSError, EOFError) as error:
                unread.append(f"{file.name} ({error})")
        return ArchiveSearch(len(files), letters, quoting, tuple(unread))

    def erase(self) -> int:
        """Write the files that have letters of the person anew, without these; return how many letters are gone.

        Raises:
            ErasureRefused: a file could not be written.
        """
        gone = 0
        for file in self._list_files():
            try:
                gone += self._erase_from(file)
            except EOFError:
                continue
            except OSError as error:
                raise ErasureRefused(
                    f"The archive {file} could not be written: {error}. Fix that, and run the command again."
                ) from error
        return gone

    def _list_files(self) -> list[Path]:
        return sorted(self._folder.glob("*.jsonl.gz")) if self._folder.is_dir() else []

    def _erase_from(self, file: Path) -> int:
        with file.open("rb") as held:
            # A recorder that writes to the file holds it (recorder/retention.py): wait for its end.
            fcntl.flock(held, fcntl.LOCK_EX)
            lines = list(_read_lines(file))
            kept = [line for line in lines if not self._is_own(line)]
            if len(kept) < len(lines):
                _replace_file(file, kept)
            return len(lines) - len(kept)

    def _is_own(self, line: bytes) -> bool:
        try:
            letter = read_letter_line(line)
        except NoExport:
            return False
        source = (str(letter["topic"]), int(letter["partition"]), int(letter["offset"]))
        if not self._subject.covers(source[0]):
            return False
        return source in self._sources or any(self._subject.owns(*part) for part in self._read_parts(letter))

    def _read_parts(self, letter: dict[str, Any]) -> Iterator[tuple[bytes | None, bytes | None]]:
        headers = unpack_headers(letter.get("headers") or b"")
        for each in (letter, *(letter.get("history") or ()), *(letter.get("edits") or ())):
            yield letter.get("key"), self._payloads.read(each.get("value"), headers).value


def _read_lines(file: Path) -> Iterator[bytes]:
    with gzip.open(file) as lines:
        for line in lines:
            yield line.rstrip(b"\n")


def _replace_file(file: Path, lines: list[bytes]) -> None:
    """Replace a file in one step, with its permissions; remove it if nothing is left."""
    if not lines:
        file.unlink()
        return
    made = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        written = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(written, "wb") as out:
            out.write(gzip.compress(b"".join(line + b"\n" for line in lines), 6))
            out.flush()
            os.fsync(out.fileno())
        os.replace(made, file)
    finally:
        made.unlink(missing_ok=True)
