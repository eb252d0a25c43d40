"""The trace context of a letter's last hop, for the span of its replay and the link to its trace."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it, unless an earlier step back has left it."""
    if "trace" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("letters")}:
        op.add_column("letters", sa.Column("trace", sa.Text(), nullable=True))


def downgrade() -> None:
    """Leave it: older versions write none."""
