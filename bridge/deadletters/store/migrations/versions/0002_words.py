"""Letters are found by words."""

from alembic import op

from bridge.deadletters.store import searching

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the index, with the letters that are there."""
    searching.make(op.get_bind())


def downgrade() -> None:
    """Drop it; the letters stay."""
    searching.drop(op.get_bind())
