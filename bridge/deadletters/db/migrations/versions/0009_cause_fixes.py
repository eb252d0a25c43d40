"""Causes of groups that are marked as fixed in a version, beside whole groups."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

#: SQLite numbers rows by INTEGER alone.
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "cause_fixes",
        sa.Column("group_id", NUMBER, nullable=False),
        sa.Column("cause", sa.String(length=12), nullable=False),
        sa.Column("fixed_in", sa.Text(), nullable=True),
        sa.Column("fixed_at", sa.BigInteger(), nullable=True),
        sa.Column("fixed_by", sa.Text(), nullable=True),
        sa.Column("fixed_plan", NUMBER, nullable=True),
        sa.Column("regressed_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["group_id"], ["groups.id"], name="fk_cause_fixes_group_id"),
        sa.PrimaryKeyConstraint("group_id", "cause", name="pk_cause_fixes"),
    )


def downgrade() -> None:
    """Drop it: an older version sends nothing back of what only a cause was marked for."""
    op.drop_table("cause_fixes")
