"""An index of the running items of plans that are no letter's own: two plans with the same one must see each other."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make it."""
    under_way = sa.text("place IS NOT NULL AND state IN ('claimed', 'sent')")
    op.create_index("ix_items_place", "items", ["place"], sqlite_where=under_way, postgresql_where=under_way)


def downgrade() -> None:
    """Drop it."""
    op.drop_index("ix_items_place", table_name="items")
