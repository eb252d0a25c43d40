"""The steps of the database's tables, a file a step (Alembic)."""
