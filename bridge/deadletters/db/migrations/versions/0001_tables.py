"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "facts",
        sa.Column("name", sa.String(length=50), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_facts"),
    )
    op.create_table(
        "groups",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("digest", sa.LargeBinary(length=16), nullable=False),
        sa.Column("handler", sa.Text(), nullable=False),
        sa.Column("error_class", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.Column("fixed_in", sa.Text(), nullable=True),
        sa.Column("fixed_at", sa.BigInteger(), nullable=True),
        sa.Column("fixed_by", sa.Text(), nullable=True),
        sa.Column("fixed_plan", NUMBER, nullable=True),
        sa.Column("regressed_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_groups"),
        sa.UniqueConstraint("digest", name="uq_groups_digest"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_groups_last_at", "groups", ["last_at"], unique=False)
    op.create_table(
        "plans",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("what", sa.String(length=10), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.Column("stopped", sa.Text(), server_default="", nullable=False),
        sa.Column("wave", sa.Integer(), server_default="0", nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("leased_by", sa.Text(), nullable=True),
        sa.Column("leased_until", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_plans"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_plans_state", "plans", ["state"], unique=False)
    op.create_table(
        "positions",
        sa.Column("consumer_group", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.String(length=40), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("next", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("missed", sa.BigInteger(), nullable=False),
        sa.Column("missed_at", sa.BigInteger(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("consumer_group", "topic", "topic_id", "partition", name="pk_positions"),
    )
    op.create_table(
        "tracebacks",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("digest", sa.LargeBinary(length=16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tracebacks"),
        sa.UniqueConstraint("digest", name="uq_tracebacks_digest"),
    )
    op.create_table(
        "trail",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("what", sa.String(length=20), nullable=False),
        sa.Column("said", sa.Text(), nullable=False),
        sa.Column("letter_id", NUMBER, nullable=True),
        sa.Column("letter", sa.Text(), server_default="", nullable=False),
        sa.Column("group_id", NUMBER, nullable=True),
        sa.Column("plan_id", NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_trail"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_trail_at", "trail", ["at"], unique=False)
    op.create_index("ix_trail_group_id", "trail", ["group_id"], unique=False)
    op.create_index("ix_trail_letter_id", "trail", ["letter_id"], unique=False)
    op.create_index("ix_trail_plan_id", "trail", ["plan_id"], unique=False)
    op.create_table(
        "items",
        sa.Column("plan_id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("letter_id", NUMBER, nullable=True),
        sa.Column("place", sa.Text(), nullable=True),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("wave", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.Column("lane", sa.BigInteger(), nullable=True),
        sa.Column("held", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("next", sa.Integer(), nullable=True),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.Column("sent_topic", sa.Text(), nullable=True),
        sa.Column("sent_partition", sa.Integer(), nullable=True),
        sa.Column("sent_offset", sa.BigInteger(), nullable=True),
        sa.Column("sent_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"], name="fk_items_plan_id"),
        sa.PrimaryKeyConstraint("plan_id", "position", name="pk_items"),
    )
    op.create_index("ix_items_letter_id", "items", ["letter_id"], unique=False)
    op.create_index(
        "ix_items_lane",
        "items",
        ["lane"],
        unique=False,
        sqlite_where=sa.text("lane IS NOT NULL AND state IN ('claimed', 'sent')"),
        postgresql_where=sa.text("lane IS NOT NULL AND state IN ('claimed', 'sent')"),
    )
    op.create_index(
        "ix_items_next",
        "items",
        ["plan_id", "state"],
        unique=False,
        sqlite_where=sa.text("next IS NOT NULL"),
        postgresql_where=sa.text("next IS NOT NULL"),
    )
    op.create_index("ix_items_state", "items", ["plan_id", "state", "held", "position"], unique=False)
    op.create_table(
        "kinds",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("digest", sa.LargeBinary(length=16), nullable=False),
        sa.Column("group_id", NUMBER, nullable=False),
        sa.Column("handler", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("origin", sa.String(length=20), nullable=False),
        sa.Column("consumer_group", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("error_class", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["groups.id"], name="fk_kinds_group_id"),
        sa.PrimaryKeyConstraint("id", name="pk_kinds"),
        sa.UniqueConstraint("digest", name="uq_kinds_digest"),
    )
    op.create_index("ix_kinds_group_id", "kinds", ["group_id"], unique=False)
    op.create_table(
        "hours",
        sa.Column("kind_id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("hour", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["kind_id"], ["kinds.id"], name="fk_hours_kind_id"),
        sa.PrimaryKeyConstraint("kind_id", "hour", name="pk_hours"),
    )
    op.create_index("ix_hours_hour", "hours", ["hour"], unique=False)
    op.create_table(
        "letters",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("digest", sa.LargeBinary(length=16), nullable=False),
        sa.Column("kind_id", NUMBER, nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("status_at", sa.BigInteger(), nullable=False),
        sa.Column("topic_id", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("timestamp", sa.BigInteger(), nullable=True),
        sa.Column("key", sa.LargeBinary(), nullable=True),
        sa.Column("key_digest", sa.BigInteger(), nullable=True),
        sa.Column("value", sa.LargeBinary(), nullable=True),
        sa.Column("value_size", sa.BigInteger(), nullable=False),
        sa.Column("headers", sa.LargeBinary(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("lost", sa.Integer(), nullable=False),
        sa.Column("postponed", sa.Integer(), nullable=False),
        sa.Column("replayed", sa.Integer(), nullable=False),
        sa.Column("error_message", sa.Text(), nullable=False),
        sa.Column("traceback_id", NUMBER, nullable=True),
        sa.Column("first_failed_at", sa.BigInteger(), nullable=False),
        sa.Column("failed_at", sa.BigInteger(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.Column("letter_topic", sa.Text(), nullable=False),
        sa.Column("letter_partition", sa.Integer(), nullable=False),
        sa.Column("letter_offset", sa.BigInteger(), nullable=False),
        sa.Column("occurrences", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("plan_id", NUMBER, nullable=True),
        sa.Column("again", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["kind_id"], ["kinds.id"], name="fk_letters_kind_id"),
        sa.ForeignKeyConstraint(["traceback_id"], ["tracebacks.id"], name="fk_letters_traceback_id"),
        sa.PrimaryKeyConstraint("id", name="pk_letters"),
        sa.UniqueConstraint("digest", name="uq_letters_digest"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_letters_ended", "letters", ["status", "status_at"], unique=False)
    op.create_index("ix_letters_failed", "letters", ["failed_at", "id"], unique=False)
    op.create_index("ix_letters_key", "letters", ["key_digest", "failed_at"], unique=False)
    op.create_index("ix_letters_kind", "letters", ["kind_id", "status", "failed_at", "id"], unique=False)
    op.create_index("ix_letters_place", "letters", ["partition", "offset"], unique=False)
    op.create_index(
        "ix_letters_replaying",
        "letters",
        ["plan_id", "id"],
        unique=False,
        sqlite_where=sa.text("status = 'replaying'"),
        postgresql_where=sa.text("status = 'replaying'"),
    )
    op.create_index("ix_letters_status", "letters", ["status", "failed_at", "id"], unique=False)
    op.create_table(
        "tallies",
        sa.Column("kind_id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["kind_id"], ["kinds.id"], name="fk_tallies_kind_id"),
        sa.PrimaryKeyConstraint("kind_id", "status", name="pk_tallies"),
    )
    op.create_table(
        "edits",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("letter_id", NUMBER, nullable=False),
        sa.Column("plan_id", NUMBER, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("how", sa.String(length=10), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["letter_id"], ["letters.id"], name="fk_edits_letter_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_edits"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_edits_letter_id", "edits", ["letter_id"], unique=False)
    op.create_index("ix_edits_plan", "edits", ["plan_id", "letter_id"], unique=True)
    op.create_table(
        "failures",
        sa.Column("letter_id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind_id", NUMBER, nullable=False),
        sa.Column("failed_at", sa.BigInteger(), nullable=False),
        sa.Column("error_message", sa.Text(), nullable=False),
        sa.Column("traceback_id", NUMBER, nullable=True),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("letter_topic", sa.Text(), nullable=False),
        sa.Column("letter_partition", sa.Integer(), nullable=False),
        sa.Column("letter_offset", sa.BigInteger(), nullable=False),
        sa.Column("plan_id", NUMBER, nullable=True),
        sa.Column("value", sa.LargeBinary(), nullable=True),
        sa.Column("value_size", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["kind_id"], ["kinds.id"], name="fk_failures_kind_id"),
        sa.ForeignKeyConstraint(["letter_id"], ["letters.id"], name="fk_failures_letter_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["traceback_id"], ["tracebacks.id"], name="fk_failures_traceback_id"),
        sa.PrimaryKeyConstraint("letter_id", "number", name="pk_failures"),
    )
    op.create_table(
        "users",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("password", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sa.UniqueConstraint("name", name="uq_users_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "sessions",
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("user_id", NUMBER, nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_sessions_user_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("digest", name="pk_sessions"),
    )
    op.create_index("ix_sessions_user_id", "sessions", ["user_id"], unique=False)
    op.create_index("ix_sessions_until", "sessions", ["until"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("digest", name="uq_tokens_digest"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    """Drop them, with all that is in them."""
    op.drop_table("tokens")
    op.drop_index("ix_sessions_until", table_name="sessions")
    op.drop_index("ix_sessions_user_id", table_name="sessions")
    op.drop_table("sessions")
    op.drop_table("users")
    op.drop_table("failures")
    op.drop_index("ix_edits_plan", table_name="edits")
    op.drop_index("ix_edits_letter_id", table_name="edits")
    op.drop_table("edits")
    op.drop_table("tallies")
    op.drop_index("ix_letters_status", table_name="letters")
    op.drop_index(
        "ix_letters_replaying",
        table_name="letters",
        sqlite_where=sa.text("status = 'replaying'"),
        postgresql_where=sa.text("status = 'replaying'"),
    )
    op.drop_index("ix_letters_place", table_name="letters")
    op.drop_index("ix_letters_kind", table_name="letters")
    op.drop_index("ix_letters_key", table_name="letters")
    op.drop_index("ix_letters_failed", table_name="letters")
    op.drop_index("ix_letters_ended", table_name="letters")
    op.drop_table("letters")
    op.drop_index("ix_hours_hour", table_name="hours")
    op.drop_table("hours")
    op.drop_index("ix_kinds_group_id", table_name="kinds")
    op.drop_table("kinds")
    op.drop_index("ix_items_state", table_name="items")
    op.drop_index(
        "ix_items_next",
        table_name="items",
        sqlite_where=sa.text("next IS NOT NULL"),
        postgresql_where=sa.text("next IS NOT NULL"),
    )
    op.drop_index(
        "ix_items_lane",
        table_name="items",
        sqlite_where=sa.text("lane IS NOT NULL AND state IN ('claimed', 'sent')"),
        postgresql_where=sa.text("lane IS NOT NULL AND state IN ('claimed', 'sent')"),
    )
    op.drop_index("ix_items_letter_id", table_name="items")
    op.drop_table("items")
    op.drop_index("ix_trail_plan_id", table_name="trail")
    op.drop_index("ix_trail_letter_id", table_name="trail")
    op.drop_index("ix_trail_group_id", table_name="trail")
    op.drop_index("ix_trail_at", table_name="trail")
    op.drop_table("trail")
    op.drop_table("tracebacks")
    op.drop_table("positions")
    op.drop_index("ix_plans_state", table_name="plans")
    op.drop_table("plans")
    op.drop_index("ix_groups_last_at", table_name="groups")
    op.drop_table("groups")
    op.drop_table("facts")
