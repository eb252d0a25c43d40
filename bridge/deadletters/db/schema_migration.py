"""The migration of the tables to the step that this version needs, by Alembic."""

from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

#: The advisory lock of migrations in PostgreSQL: two processes that start together must not both create the tables.
_LOCK: Final = 0x6272_6467_6465_736B
#: Alembic's table of the current step.
VERSION_TABLE: Final = "desk_version"


def read_step(connection: Connection) -> str | None:
    """Return the step of a database's tables; `None` if it has no tables."""
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def is_at_step(connection: Connection, to: str) -> bool:
    """Return whether a database is at a step, or at "head", so that no write is needed."""
    return read_step(connection) == (find_newest_step() if to == "head" else to)


def find_newest_step() -> str:
    """Return the step that this version needs."""
    return str(ScriptDirectory.from_config(_config(None)).get_current_head())


def is_known_step(step: str) -> bool:
    """Return whether this version has a step; if not, a newer version has migrated the database."""
    return step in list_steps()


def list_steps() -> list[str]:
    """Return the steps of this version, oldest first."""
    return [script.revision for script in ScriptDirectory.from_config(_config(None)).walk_revisions()][::-1]


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
    (command.downgrade if down else command.upgrade)(_config(connection), to)


def _config(connection: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", "bridge.deadletters.db:migrations")
    config.attributes["connection"] = connection
    return config
