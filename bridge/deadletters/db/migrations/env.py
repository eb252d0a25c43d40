"""The script of Alembic: the steps on the connection that `bridge.deadletters.db.schema_migration` has opened."""

from alembic import context

from bridge.deadletters.db.table_definitions import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table="desk_version",
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
