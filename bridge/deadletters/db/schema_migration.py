"""The migration of the tables to the step that this version needs, by Alembic."""

from typing import Final

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from bridge.deadletters.db.schema import metadata

#: Of this application, as a lock in PostgreSQL: two processes that start together must not both make the tables.
_LOCK: Final = 0x6272_6467_6465_736B
#: Where Alembic notes which steps were taken.
VERSION_TABLE: Final = "desk_version"


def read_step(connection: Connection) -> str | None:
    """The step that a database has come to; `None`: it has no tables of the desk."""
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def is_at_step(connection: Connection, to: str) -> bool:
    """Whether a database has come to a step, or to "head"; then nobody need write to it."""
    return read_step(connection) == (find_newest_step() if to == "head" else to)


def find_newest_step() -> str:
    """The step that this version of the desk needs."""
    return str(ScriptDirectory.from_config(_config(None)).get_current_head())


def is_known_step(step: str) -> bool:
    """Whether a step is one of this version's: if not, a newer version of the desk has been here."""
    return step in list_steps()


def list_steps() -> list[str]:
    """The steps of this version, the oldest first."""
    return [script.revision for script in ScriptDirectory.from_config(_config(None)).walk_revisions()][::-1]


def migrate_tables(connection: Connection, to: str = "head") -> None:
    """Bring the tables to a step, in the connection's transaction; one process at a time.

    Parameters:
        to: a step of `steps`, "head" for the newest, "base" for no tables at all.
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


def find_schema_differences(connection: Connection) -> list[object]:
    """How the tables differ from those that this version works with; none where all steps were taken."""
    options = {"version_table": VERSION_TABLE, "include_name": _is_of_the_schema}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


def _is_of_the_schema(name: str | None, kind: str, _parents: object) -> bool:
    # The index of words is each database's own (store.searching); SQLite keeps it in several tables.
    return kind != "table" or name is None or not name.startswith("words")


def _config(connection: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", "bridge.deadletters.db:migrations")
    config.attributes["connection"] = connection
    return config
