"""Sessions of people whom an issuer of OpenID Connect has signed in."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table; a version that does not know it takes nobody in by it."""
    op.create_table(
        "issued_sessions",
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_issued_sessions"),
    )
    op.create_index("ix_issued_sessions_until", "issued_sessions", ["until"], unique=False)


def downgrade() -> None:
    """Drop it: they sign in anew."""
    op.drop_index("ix_issued_sessions_until", table_name="issued_sessions")
    op.drop_table("issued_sessions")
