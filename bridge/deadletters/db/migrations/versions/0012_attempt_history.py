"""The last attempts of a letter and of its earlier failures, for the timeline."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add them, unless an earlier step back has left them."""
    for table in ("letters", "failures"):
        if "attempt_history" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}:
            op.add_column(table, sa.Column("attempt_history", sa.Text(), nullable=True))


def downgrade() -> None:
    """Leave them: older versions write none."""
