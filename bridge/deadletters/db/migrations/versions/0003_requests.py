"""A table of requests, so that each is carried out once."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the table of their idempotency keys."""
    op.create_table(
        "requests",
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("asked", sa.LargeBinary(length=32), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("claimed_by", sa.LargeBinary(length=16), nullable=False),
        sa.Column("claimed_until", sa.BigInteger(), nullable=False),
        sa.Column("trail_id", NUMBER, nullable=True),
        sa.Column("status", sa.SmallInteger(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("digest", name="pk_requests"),
    )
    op.create_index("ix_requests_until", "requests", ["until"], unique=False)


def downgrade() -> None:
    """Drop it: what was asked for stays done."""
    op.drop_index("ix_requests_until", table_name="requests")
    op.drop_table("requests")
