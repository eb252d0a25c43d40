"""Letters are found by words."""

from alembic import op

from bridge.deadletters.db import search_index

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the index, with the letters that are there."""
    search_index.create_search_index(op.get_bind())


def downgrade() -> None:
    """Drop it; the letters stay."""
    search_index.drop_search_index(op.get_bind())
