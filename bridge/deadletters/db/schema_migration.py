"""The migration of the tables to the step that this version needs, by Alembic."""

from pathlib import Path
from typing import Final

from sqlalchemy import Connection, inspect, text

from bridge.deadletters.db.migrations import versions

#: The advisory lock of migrations in PostgreSQL: two processes that start together must not both create the tables.
_LOCK: Final = 0x6272_6467_6465_736B
#: Alembic's table of the current step.
VERSION_TABLE: Final = "desk_version"


def read_step(connection: Connection) -> str | None:
    """Return the step of a database's tables; `None` if it has no tables."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    step = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()
    return None if step is None else str(step)


def is_at_step(connection: Connection, to: str) -> bool:
    """Return whether a database is at a step, or at "head", so that no write is needed."""
    return read_step(connection) == (find_newest_step() if to == "head" else to)


def find_newest_step() -> str:
    """Return the step that this version needs."""
    return list_steps()[-1]


def is_known_step(step: str) -> bool:
    """Return whether this version has a step; if not, a newer version has migrated the database."""
    return step in list_steps()


def list_steps() -> list[str]:
    """Return the steps of this version, oldest first: the numbers that the files of the steps begin with."""
    return sorted(file.name.partition("_")[0] for file in Path(versions.__path__[0]).glob("[0-9]*.py"))


def migrate_tables(connection: Connection, to: str = "head") -> None:
    """Migrate the tables to a step in the connection's transaction, one process at a time.

    Parameters:
        to: a step of `list_steps`, "head" for the newest, "base" for no tables at all.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    if is_at_step(connection, to):
        return
    if connection.dialect.name == "postgresql":
        from bridge.deadletters.db.postgresql_engine import lift_timeouts

        lift_timeouts(connection)
    known, current = list_steps(), read_step(connection)
    down = to == "base" or (current in known and to in known and known.index(to) < known.index(str(current)))
    # Every command opens the database, and hardly one migrates it.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "bridge.deadletters.db:migrations")
    config.attributes["connection"] = connection
    (command.downgrade if down else command.upgrade)(config, to)
