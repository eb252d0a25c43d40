"""How the desk's tables came to be what they are, a file a step (Alembic)."""
