"""The rewriting of a database's files, after which they have no bytes of deleted rows."""

import time
from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Engine

#: Seconds to wait for readers of a SQLite file.
READERS_WITHIN: Final = 30.0
#: The SQLSTATE for a missing right.
_NO_PRIVILEGE: Final = "42501"


def rewrite_files(engine: Engine, tables: Iterable[str]) -> list[str]:
    """Rewrite the files of a database, and return what remains of deleted rows, and where: a sentence each.

    Parameters:
        tables: those with deleted or changed rows.
    """
    with engine.connect() as connection:
        raw: Any = connection.connection.dbapi_connection
        if connection.dialect.name == "sqlite":
            return _rewrite_sqlite(raw)
        return _rewrite_postgresql(raw, tables)


def _rewrite_sqlite(raw: Any) -> list[str]:
    raw.execute("PRAGMA secure_delete=ON").close()
    # The full-text index keeps deleted words until its parts are merged.
    raw.execute("INSERT INTO words(words) VALUES('optimize')").close()
    raw.execute("VACUUM").close()
    until = time.monotonic() + READERS_WITHIN
    while raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        if time.monotonic() > until:
            return ["the write-ahead log (-wal), which another process reads: until all its readers have ended"]
        time.sleep(0.1)
    return ["freed blocks of the disk, which the file system does not overwrite; backups of the file"]


def _rewrite_postgresql(raw: Any, tables: Iterable[str]) -> list[str]:
    raw.rollback()
    raw.autocommit, raw.patience = True, None
    skipped: list[str] = []
    # PostgreSQL skips, with a warning, what the user may not rewrite.
    raw.add_notice_handler(lambda notice: skipped.append(str(notice.message_primary)))
    try:
        raw.execute("SET statement_timeout = 0")
        for table in tables:
            raw.execute(f"VACUUM (FULL, ANALYZE) {table}")
        # The planner's statistics have samples of texts.
        raw.execute("VACUUM (FULL) pg_catalog.pg_statistic")
        _remove_old_files(raw)
        archive = raw.execute("SHOW archive_mode").fetchone()[0]
        size = raw.execute("SHOW max_wal_size").fetchone()[0]
    finally:
        raw.execute("RESET statement_timeout")
        raw.autocommit = False
    wal = f"the write-ahead log (pg_wal), until its files are recycled (max_wal_size {size}, and replication slots)"
    archived = f"; archive_mode is {archive}: its WAL archive" if archive != "off" else ""
    kept = "; ".join(dict.fromkeys(skipped))
    refused = [f"deleted rows in files that were not rewritten ({kept}): have the tables' owner run VACUUM FULL"]
    return [*(refused if kept else []), f"{wal}{archived}; replicas, base backups and dumps; freed blocks of the disk"]


def _remove_old_files(raw: Any) -> None:
    """Have old files removed by a checkpoint; without the right for it the next one removes them, within minutes."""
    try:
        raw.execute("CHECKPOINT")
    except Exception as error:
        if getattr(error, "sqlstate", "") != _NO_PRIVILEGE:
            raise
