"""Copies in memory of the SQLite files that a handler opens on trial: it reads and writes them, and the files stay."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

#: The largest file that is copied, in bytes: it is in memory twice in each run.
LARGEST: Final = 64 << 20
#: SQLite that has databases in memory which several connections share.
_NEEDED: Final = (3, 36, 0)
#: The place of the journal's kind in the header of a file: 2 is a write-ahead log.
_JOURNAL: Final = 18

Refuse = Callable[[str], None]
Need = Callable[[Any], None]


class DatabaseCopies:
    """The copies of one shadow: each file as it was when a handler first opened it.

    Attributes:
        files: by path, the copy; or why there is none.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes | str] = {}

    def learn(self, path: str) -> bool:
        """Copy a file that a run has opened; return whether it is new."""
        if path in self.files:
            return False
        self.files[path] = _copy_file(path)
        return True

    @property
    def copied(self) -> list[str]:
        """Return the paths of the files that were copied."""
        return sorted(path for path, content in self.files.items() if isinstance(content, bytes))

    def enter(self, need: Need, refuse: Refuse) -> None:
        """Have `sqlite3.connect` open the copies in this process, for good.

        Parameters:
            need: told the path of a file that is not copied yet.
            refuse: told why a file is not opened.
        """
        connect: Any = sqlite3.connect
        #: A database in memory lives as long as a connection to it.
        kept: dict[str, Any] = {}

        @wraps(connect)
        def connect_copy(database: Any, *args: Any, **options: Any) -> Any:
            # The seventh argument behind the database.
            is_uri = bool(options.get("uri", args[6] if len(args) > 6 else False))
            path = _find_path(database, is_uri)
            if path is None:
                return connect(database, *args, **options)
            content = self.files.get(path)
            if content is None:
                need({"sqlite": path})
                raise PermissionError(f"{path} has no copy yet")
            if isinstance(content, str):
                refuse(f"the SQLite database {path}, {content}")
                raise PermissionError(f"{path} has no copy: {content}")
            name = f"file:/copy-{[*self.files].index(path)}?vfs=memdb"
            if path not in kept:
                kept[path] = _open_copy(connect, name, content)
            if len(args) > 6:
                args = (*args[:6], True, *args[7:])
            else:
                options["uri"] = True
            opened = connect(name, *args, **options)
            # A sort that is too large for memory would write a file.
            opened.execute("PRAGMA temp_store = MEMORY")
            return opened

        for module in (sqlite3, sqlite3.dbapi2):
            module.connect = connect_copy  # type: ignore[attr-defined]


def _open_copy(connect: Any, name: str, content: bytes) -> Any:
    kept = connect(name, uri=True, check_same_thread=False)
    if content:
        source = connect(":memory:")
        source.deserialize(content)
        source.backup(kept)
        source.close()
    return kept


def _find_path(database: Any, is_uri: bool) -> str | None:
    """Return the absolute path of a database; `None`: it is none in a file."""
    name = os.fsdecode(database)
    if is_uri and name.startswith("file:"):
        found = urlsplit(name)
        if "mode=memory" in found.query or "vfs=memdb" in found.query or found.path == ":memory:":
            return None
        name = unquote(found.path)
    return None if name in (":memory:", "") else str(Path(name).absolute())


def _copy_file(path: str) -> bytes | str:
    """Return the content of a SQLite file, with what its log has; empty if there is none. Else why it has no copy."""
    if sqlite3.sqlite_version_info < _NEEDED:
        return f"and SQLite {sqlite3.sqlite_version} cannot share a copy in memory ({'.'.join(map(str, _NEEDED))} can)"
    try:
        if not os.path.exists(path):
            return b""
        if (size := os.path.getsize(path)) > LARGEST:
            return f"which has {size >> 20:,} MiB: up to {LARGEST >> 20} are copied"
        with tempfile.TemporaryDirectory() as folder:
            source = sqlite3.connect(_name_source(path, Path(folder)), uri=True)
            copy = sqlite3.connect(":memory:")
            try:
                source.backup(copy)
                content = copy.serialize()
            finally:
                source.close()
                copy.close()
        # A database in memory has no write-ahead log: its header must not name one.
        return content[:_JOURNAL] + b"\1\1" + content[_JOURNAL + 2 :]
    except (OSError, sqlite3.Error) as error:
        return f"which cannot be copied: {error}"


def _name_source(path: str, folder: Path) -> str:
    """Return the URI by which a file is read without leaving anything beside it.

    Parameters:
        folder: a temporary one.
    """
    log, index = Path(f"{path}-wal"), Path(f"{path}-shm")
    with open(path, "rb") as file:
        is_logged = file.read(_JOURNAL + 1)[_JOURNAL:] == b"\2"
    if not is_logged or (log.exists() and index.exists()):
        return f"file:{quote(path)}?mode=ro"
    if not log.exists():
        # Nobody has it open, and a reader would make the log and its index.
        return f"file:{quote(path)}?immutable=1"
    for file_ in (Path(path), log):
        shutil.copy(file_, folder / file_.name)
    return f"file:{quote(str(folder / Path(path).name))}"
