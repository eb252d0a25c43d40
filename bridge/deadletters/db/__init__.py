"""The desk's database: the only SQL of the desk."""

import logging

# Before Alembic is imported: it names each of its plugins then, and three steps for each look, to who reads a log.
logging.getLogger("alembic").setLevel(logging.WARNING)
