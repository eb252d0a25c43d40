"""The second person who approves a plan."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the planner and the approval."""
    op.add_column("plans", sa.Column("planner", sa.Text(), nullable=False, server_default=""))
    op.add_column("plans", sa.Column("approved_by", sa.Text(), nullable=False, server_default=""))
    op.add_column("plans", sa.Column("approved_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Drop them: older versions do not know plans that await somebody, and would apply them without an approval."""
    op.execute("UPDATE plans SET state = 'stopped', stopped = 'nobody approved it' WHERE state = 'awaiting'")
    for name in ("approved_at", "approved_by", "planner"):
        op.drop_column("plans", name)
