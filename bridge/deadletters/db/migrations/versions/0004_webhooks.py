"""Webhooks: addresses that are told of alarms, what they are told, and the alarms that stand."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
#: The number of the last look at the alarms that changed any (`bridge.deadletters.db.webhook_rows`).
LOOK = "INSERT INTO alarms (key, about, name, at, data) VALUES ('', '', '', 0, '{}')"


def upgrade() -> None:
    """Make the tables. That no group is told of yet tells nobody: there is no webhook."""
    op.add_column("groups", sa.Column("told_at", sa.BigInteger(), nullable=True))
    untold = sa.text("told_at IS NULL")
    op.create_index("ix_groups_untold", "groups", ["id"], sqlite_where=untold, postgresql_where=untold)
    op.create_table(
        "webhooks",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("format", sa.String(length=10), nullable=False),
        sa.Column("about", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("off_at", sa.BigInteger(), nullable=True),
        sa.Column("off_why", sa.Text(), server_default="", nullable=False),
        sa.Column("leased_by", sa.Text(), nullable=True),
        sa.Column("leased_until", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
        sa.UniqueConstraint("name", name="uq_webhooks_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("message", sa.String(length=40), nullable=False),
        sa.Column("webhook_id", NUMBER, nullable=False),
        sa.Column("about", sa.String(length=10), nullable=False),
        sa.Column("type", sa.String(length=30), nullable=False),
        sa.Column("alarm", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("page", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("tried_at", sa.BigInteger(), nullable=True),
        sa.Column("said", sa.Text(), server_default="", nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name="fk_webhook_deliveries_webhook_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_deliveries"),
        sa.UniqueConstraint("message", name="uq_webhook_deliveries_message"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhook_deliveries_webhook", "webhook_deliveries", ["webhook_id", "id"])
    op.create_index("ix_webhook_deliveries_ended", "webhook_deliveries", ["ended_at"])
    waiting = sa.text("state = 'waiting'")
    columns = ["webhook_id", "next_at"]
    op.create_index(
        "ix_webhook_deliveries_waiting",
        "webhook_deliveries",
        columns,
        sqlite_where=waiting,
        postgresql_where=waiting,
    )
    op.create_table(
        "alarms",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("about", sa.String(length=10), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_alarms"),
    )
    op.execute(LOOK)


def downgrade() -> None:
    """Take them away, with what they have."""
    op.drop_table("alarms")
    op.drop_table("webhook_deliveries")
    op.drop_table("webhooks")
    op.drop_index("ix_groups_untold", table_name="groups")
    op.drop_column("groups", "told_at")
