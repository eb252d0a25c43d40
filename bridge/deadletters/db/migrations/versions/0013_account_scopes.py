"""The scope of accounts: the topics and consumer groups whose letters a user, a session or a token sees."""

import sqlalchemy as sa
from alembic import op

from bridge.errors import ScopeFault

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_TABLES = ("users", "issued_sessions", "tokens")
_COLUMNS = ("topics", "consumer_groups")


def upgrade() -> None:
    """Add them. Empty: everything, which is what accounts of before see."""
    for table in _TABLES:
        for name in _COLUMNS:
            op.add_column(table, sa.Column(name, sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    """Drop them, unless an account has a scope: older versions would show it everything.

    Raises:
        ScopeFault: accounts have a scope.
    """
    for table, what in (("users", "user"), ("tokens", "token")):
        names = op.get_bind().execute(
            sa.text(f"SELECT name FROM {table} WHERE topics <> '' OR consumer_groups <> '' ORDER BY name")
        )
        if found := [str(name) for name in names.scalars()]:
            raise ScopeFault(
                f"The {what} {', '.join(found[:10])} sees some topics alone, and the older version would show "
                "everything: remove these accounts, or give them no scope, and migrate again. Nothing was changed."
            )
    # People whom an issuer signs in do so again.
    op.execute("DELETE FROM issued_sessions WHERE topics <> '' OR consumer_groups <> ''")
    for table in _TABLES:
        for name in _COLUMNS:
            op.drop_column(table, name)
