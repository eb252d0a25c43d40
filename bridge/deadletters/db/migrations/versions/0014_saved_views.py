"""Saved views: filters of the list of letters, by name, of one user or of all."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    # SQLite numbers rows by INTEGER alone.
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "saved_views",
        sa.Column("id", number, autoincrement=True, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("fields", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_saved_views"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    """Drop the table: older versions have no views."""
    op.drop_table("saved_views")
