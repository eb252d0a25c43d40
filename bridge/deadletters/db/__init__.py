"""The database of the dead-letter store: only this package has SQL of it."""

import logging

# Before the import of Alembic, which logs each of its plugins then, and three lines for each use.
logging.getLogger("alembic").setLevel(logging.WARNING)
