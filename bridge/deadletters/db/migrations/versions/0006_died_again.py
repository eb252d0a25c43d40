"""An index of the letters that died more than once: what to do next with a group asks for those that are open."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make it."""
    again = sa.text("failures > 1")
    op.create_index("ix_letters_again", "letters", ["kind_id", "status"], sqlite_where=again, postgresql_where=again)


def downgrade() -> None:
    """Drop it."""
    op.drop_index("ix_letters_again", table_name="letters")
