"""The cause of a kind's failures; letters that were recorded before have the cause "unknown"."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it, unless an earlier step back has left it."""
    if "cause" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("kinds")}:
        op.add_column("kinds", sa.Column("cause", sa.String(12), nullable=False, server_default="unknown"))


def downgrade() -> None:
    """Leave it: a kind's digest is of its cause too, and older versions, which write none, get the default."""
