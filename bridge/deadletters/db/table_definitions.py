"""The definitions of the tables of the dead-letter store; `*_rows.py` read and write their rows.

Columns that many letters share are stored once, in a *kind*. Filters and groups are answered from
kinds and from *tallies*, which every change of a status updates in its own transaction, so no query scans
`letters`. Times are milliseconds since the epoch.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    false,
    text,
)

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)
#: SQLite assigns ids itself if the primary key is an INTEGER.
_NUMBER: Final = BigInteger().with_variant(Integer, "sqlite")


def _id() -> Column[int]:
    return Column("id", _NUMBER, primary_key=True, autoincrement=True)


def _partial_index(name: str, where: str, *columns: str) -> Index:
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


#: Facts about the database itself: the Kafka cluster of its letters.
facts = Table("facts", metadata, Column("name", String(50), primary_key=True), Column("value", Text, nullable=False))

#: Failure groups: handler, class of the exception, and the location that raised it.
groups = Table(
    "groups",
    metadata,
    _id(),
    Column("digest", LargeBinary(16), nullable=False, unique=True),
    Column("handler", Text, nullable=False),
    Column("error_class", Text, nullable=False),
    Column("place", Text, nullable=False),
    Column("first_at", BigInteger, nullable=False),
    Column("last_at", BigInteger, nullable=False, index=True),
    # Fixed in this version of the handlers' code: its letters go back once workers report it.
    Column("fixed_in", Text),
    Column("fixed_at", BigInteger),
    Column("fixed_by", Text),
    # The plan that replayed them, and when one of them failed again in that version.
    Column("fixed_plan", _NUMBER),
    Column("regressed_at", BigInteger),
    # When its event for webhooks was written; NULL: not yet.
    Column("told_at", BigInteger),
    _partial_index("ix_groups_untold", "told_at IS NULL", "id"),
    # An id is never reused.
    sqlite_autoincrement=True,
)

#: Kinds: the columns that letters share and filters select.
kinds = Table(
    "kinds",
    metadata,
    _id(),
    Column("digest", LargeBinary(16), nullable=False, unique=True),
    Column("group_id", _NUMBER, ForeignKey("groups.id"), nullable=False, index=True),
    Column("handler", Text, nullable=False),
    Column("topic", Text, nullable=False),
    # "bridge", or the other program that wrote it (bridge.formats.foreign_dead_letter).
    Column("origin", String(20), nullable=False),
    # The consumer group that handed it off, or a connector's name.
    Column("consumer_group", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("error_class", Text, nullable=False),
    Column("version", Text, nullable=False),
    # The cause within the group (bridge.deadletters.model.failure_group).
    Column("cause", String(12), nullable=False, server_default="unknown"),
)

#: Causes that are marked as fixed in a version, or failed in it again; `groups` has the same columns for groups.
cause_fixes = Table(
    "cause_fixes",
    metadata,
    Column("group_id", _NUMBER, ForeignKey("groups.id"), primary_key=True, autoincrement=False),
    Column("cause", String(12), primary_key=True),
    Column("fixed_in", Text),
    Column("fixed_at", BigInteger),
    Column("fixed_by", Text),
    Column("fixed_plan", _NUMBER),
    Column("regressed_at", BigInteger),
)

#: Letters by kind and status, updated in the transaction that changes a status.
tallies = Table(
    "tallies",
    metadata,
    Column("kind_id", _NUMBER, ForeignKey("kinds.id"), primary_key=True, autoincrement=False),
    Column("status", String(10), primary_key=True),
    Column("count", BigInteger, nullable=False),
)

#: Failures by kind and hour (of Unix time).
hours = Table(
    "hours",
    metadata,
    Column("kind_id", _NUMBER, ForeignKey("kinds.id"), primary_key=True, autoincrement=False),
    Column("hour", Integer, primary_key=True, autoincrement=False, index=True),
    Column("count", BigInteger, nullable=False),
)

#: Tracebacks without messages, each once: all letters of a fault share one.
tracebacks = Table(
    "tracebacks",
    metadata,
    _id(),
    Column("digest", LargeBinary(16), nullable=False, unique=True),
    Column("text", Text, nullable=False),
)

#: Letters: one row for each delivery that is or was a dead letter, with its last failure.
letters = Table(
    "letters",
    metadata,
    _id(),
    # The digest of its identity: consumer group, source topic and its log, partition, offset, handler.
    Column("digest", LargeBinary(16), nullable=False, unique=True),
    Column("kind_id", _NUMBER, ForeignKey("kinds.id"), nullable=False),
    Column("status", String(10), nullable=False),
    Column("status_at", BigInteger, nullable=False),
    Column("topic_id", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("timestamp", BigInteger),
    Column("key", LargeBinary),
    # 8 bytes of the key's digest as a number: keys may be too long for an index.
    Column("key_digest", BigInteger),
    # NULL if `value_size` is above the limit (it is read from Kafka on demand), or -1: a tombstone.
    Column("value", LargeBinary),
    Column("value_size", BigInteger, nullable=False),
    # The producer's headers, as bridge.deadletters.model.stored_letter packs them.
    Column("headers", LargeBinary, nullable=False),
    Column("number", Integer, nullable=False),
    Column("runs", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("lost", Integer, nullable=False),
    Column("postponed", Integer, nullable=False),
    Column("replayed", Integer, nullable=False),
    Column("error_message", Text, nullable=False),
    Column("traceback_id", _NUMBER, ForeignKey("tracebacks.id")),
    Column("first_failed_at", BigInteger, nullable=False),
    Column("failed_at", BigInteger, nullable=False),
    Column("recorded_at", BigInteger, nullable=False),
    # The position of its last record.
    Column("letter_topic", Text, nullable=False),
    Column("letter_partition", Integer, nullable=False),
    Column("letter_offset", BigInteger, nullable=False),
    # Its records in Kafka: one for each death, and the duplicates that crashes wrote.
    Column("occurrences", Integer, nullable=False),
    # How often it died: once, and again after replays (`failures` has the earlier ones).
    Column("failures", Integer, nullable=False),
    # The plan that replays it, or did last.
    Column("plan_id", _NUMBER),
    # The redrive that ran it though it was done; NULL: none.
    Column("again", Text),
    # The context of its delivery's last hop (header delivery_trace); NULL: none.
    Column("trace", Text),
    # Its last attempts (header attempt_history); NULL: it names none.
    Column("attempt_history", Text),
    Index("ix_letters_kind", "kind_id", "status", "failed_at", "id"),
    Index("ix_letters_status", "status", "failed_at", "id"),
    Index("ix_letters_failed", "failed_at", "id"),
    Index("ix_letters_place", "partition", "offset"),
    Index("ix_letters_key", "key_digest", "failed_at"),
    Index("ix_letters_ended", "status", "status_at"),
    _partial_index("ix_letters_again", "failures > 1", "kind_id", "status"),
    _partial_index("ix_letters_replaying", "status = 'replaying'", "plan_id", "id"),
    sqlite_autoincrement=True,
)

#: The earlier failures of letters.
failures = Table(
    "failures",
    metadata,
    Column("letter_id", _NUMBER, ForeignKey("letters.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("kind_id", _NUMBER, ForeignKey("kinds.id"), nullable=False),
    Column("failed_at", BigInteger, nullable=False),
    Column("error_message", Text, nullable=False),
    Column("traceback_id", _NUMBER, ForeignKey("tracebacks.id")),
    Column("runs", Integer, nullable=False),
    Column("letter_topic", Text, nullable=False),
    Column("letter_partition", Integer, nullable=False),
    Column("letter_offset", BigInteger, nullable=False),
    # The plan that replayed it after this failure, with the next failure as the result.
    Column("plan_id", _NUMBER),
    # The value of this failure, if the next one had another value: it was edited. NULL in `value_size`: the same value.
    Column("value", LargeBinary),
    Column("value_size", BigInteger),
    Column("attempt_history", Text),
)

#: Values that plans send in the place of a letter's own, which changes only when one of them fails in turn.
edits = Table(
    "edits",
    metadata,
    _id(),
    Column("letter_id", _NUMBER, ForeignKey("letters.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("plan_id", _NUMBER, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    # "edit", "patch" or "upgrade".
    Column("how", String(10), nullable=False),
    # NULL: a tombstone.
    Column("value", LargeBinary),
    Index("ix_edits_plan", "plan_id", "letter_id", unique=True),
    sqlite_autoincrement=True,
)

#: Recorded positions of dead-letter topics, written with the letters, so that each record counts once.
positions = Table(
    "positions",
    metadata,
    # The only group whose letters are recorded; "": all groups. Groups that share a topic have a position each.
    Column("consumer_group", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("topic_id", String(40), primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("next", BigInteger, nullable=False),
    # The leader epoch of the record before it, by which Kafka detects a truncated log; -1: unknown.
    Column("epoch", Integer, nullable=False),
    # Records that Kafka dropped before they were recorded (retention).
    Column("missed", BigInteger, nullable=False),
    # When that was last found; NULL: never.
    Column("missed_at", BigInteger),
    Column("at", BigInteger, nullable=False),
)

#: Plans: bulk actions, with their frozen letters (`items`) and their state.
plans = Table(
    "plans",
    metadata,
    _id(),
    # "replay", "discard", "archive", "copy", "redrive".
    Column("what", String(10), nullable=False),
    Column("state", String(10), nullable=False, index=True),
    Column("by", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("why", Text, nullable=False),
    # As JSON: the filter, the options (rate, canary, target), the counts.
    Column("asked", Text, nullable=False),
    Column("options", Text, nullable=False),
    Column("counts", Text, nullable=False),
    # Why it stopped, if it did.
    Column("stopped", Text, nullable=False, server_default=""),
    Column("wave", Integer, nullable=False, server_default="0"),
    # Who made it; of an API token, who made the token. Empty: as `by`.
    Column("planner", Text, nullable=False, server_default=""),
    # The second person who approved it, and when.
    Column("approved_by", Text, nullable=False, server_default=""),
    Column("approved_at", BigInteger),
    Column("began_at", BigInteger),
    Column("ended_at", BigInteger),
    # The process with the lease, and the lease's end.
    Column("leased_by", Text),
    Column("leased_until", BigInteger),
    sqlite_autoincrement=True,
)

#: The deliveries of plans.
items = Table(
    "items",
    metadata,
    Column("plan_id", _NUMBER, ForeignKey("plans.id"), primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    # NULL for a delivery without a letter (a redrive): then `place` names it.
    Column("letter_id", _NUMBER, index=True),
    Column("place", Text),
    # How often the letter had died when the plan was made: a later death makes the item obsolete.
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("wave", SmallInteger, nullable=False, server_default="0"),
    # "waiting" → "claimed" → "sent" → an outcome: "done", "dead", "discarded", "unknown"; or "skipped", "refused".
    Column("state", String(10), nullable=False),
    Column("why", Text, nullable=False, server_default=""),
    # The lane, if order is kept (bridge.deadletters.model.plan_order); NULL: unordered.
    Column("lane", BigInteger),
    # Whether its predecessor in the lane has not ended; and the position of its successor, until that is released.
    Column("held", Boolean, nullable=False, server_default=false()),
    Column("next", Integer),
    Column("number", Integer),
    Column("sent_topic", Text),
    Column("sent_partition", Integer),
    Column("sent_offset", BigInteger),
    Column("sent_at", BigInteger),
    Column("ended_at", BigInteger),
    Index("ix_items_state", "plan_id", "state", "held", "position"),
    _partial_index("ix_items_next", "next IS NOT NULL", "plan_id", "state"),
    _partial_index("ix_items_lane", "lane IS NOT NULL AND state IN ('claimed', 'sent')", "lane"),
    _partial_index("ix_items_place", "place IS NOT NULL AND state IN ('claimed', 'sent')", "place"),
)

#: The audit log: never deleted, not even with the letter.
trail = Table(
    "trail",
    metadata,
    _id(),
    Column("at", BigInteger, nullable=False, index=True),
    Column("by", Text, nullable=False),
    # "note", "replay", "discard", "fixed", …
    Column("what", String(20), nullable=False),
    Column("said", Text, nullable=False),
    Column("letter_id", _NUMBER, index=True),
    # The letter's name, for when its row is gone: `orders-3-1234:orders.handlers.charge`.
    Column("letter", Text, nullable=False, server_default=""),
    Column("group_id", _NUMBER, index=True),
    Column("plan_id", _NUMBER, index=True),
    sqlite_autoincrement=True,
)

#: The users of the console.
users = Table(
    "users",
    metadata,
    _id(),
    # In lower case.
    Column("name", String(100), nullable=False, unique=True),
    # "viewer", "operator", "admin".
    Column("role", String(10), nullable=False),
    # The argon2 hash, with salt and parameters; or the link to choose a password
    # (deadletters/accounts/user_account.py).
    Column("password", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    # Its scope (bridge.deadletters.model.letter_scope), with a space between patterns; empty: everything.
    Column("topics", Text, nullable=False, server_default=""),
    Column("consumer_groups", Text, nullable=False, server_default=""),
    sqlite_autoincrement=True,
)

#: Sessions by a hash of the cookie, so that a copy of the database opens nothing.
sessions = Table(
    "sessions",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    # NULL: signed in by the one-time link of a console without users.
    Column("user_id", _NUMBER, ForeignKey("users.id", ondelete="CASCADE"), index=True),
    Column("at", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False, index=True),
)

#: Sessions of people whom an OpenID Connect issuer signed in, by a hash of the cookie. Not in `sessions`: versions that
#: do not know issuers would take them for sessions of the one-time link.
issued = Table(
    "issued_sessions",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("issuer", Text, nullable=False),
    # For the audit log; and the role that the issuer gave at the sign-in.
    Column("name", Text, nullable=False),
    Column("role", String(20), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False, index=True),
    # As the issuer gave it at the sign-in.
    Column("topics", Text, nullable=False, server_default=""),
    Column("consumer_groups", Text, nullable=False, server_default=""),
)

#: API tokens by the hash of the secret.
tokens = Table(
    "tokens",
    metadata,
    _id(),
    Column("digest", LargeBinary(32), nullable=False, unique=True),
    # Its purpose, in its maker's words.
    Column("name", Text, nullable=False),
    Column("role", String(10), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    Column("until", BigInteger, nullable=False),
    # To a minute; NULL: never.
    Column("used_at", BigInteger),
    Column("topics", Text, nullable=False, server_default=""),
    Column("consumer_groups", Text, nullable=False, server_default=""),
    sqlite_autoincrement=True,
)

#: Requests of programs by idempotency key: each is done once, and a repetition gets the same answer.
requests = Table(
    "requests",
    metadata,
    # The digest of token and key.
    Column("digest", LargeBinary(32), primary_key=True),
    # The digest of the request: another request with the same key is refused.
    Column("asked", LargeBinary(32), nullable=False),
    Column("until", BigInteger, nullable=False, index=True),
    # The process with the claim, and the claim's end.
    Column("claimed_by", LargeBinary(16), nullable=False),
    Column("claimed_until", BigInteger, nullable=False),
    # The audit entry, written with the act; NULL: it was not done, or is no act in the database.
    Column("trail_id", _NUMBER),
    # The answer; NULL: none yet.
    Column("status", SmallInteger),
    Column("answer", Text),
)

#: Filters of the list of letters by name, of one user or of all.
saved_views = Table(
    "saved_views",
    metadata,
    _id(),
    # The user's name as in the audit log; "": for all users. An erasure may give two views one name.
    Column("owner", Text, nullable=False),
    Column("name", Text, nullable=False),
    # As JSON: words of fields and texts, of which "24h" goes on meaning the last day.
    Column("fields", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

#: Webhooks: addresses that receive alarms.
webhooks = Table(
    "webhooks",
    metadata,
    _id(),
    Column("name", String(100), nullable=False, unique=True),
    # In full: a part of it may be a password, and is never shown.
    Column("address", Text, nullable=False),
    # "standard", "slack", "pagerduty".
    Column("format", String(10), nullable=False),
    # The kinds of alarms, comma-separated.
    Column("about", Text, nullable=False),
    # The signing secret, or the receiver's key; encrypted if DEADLETTERS_SECRET_KEY is set.
    Column("secret", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    # When it was switched off, and why; NULL: it is on.
    Column("off_at", BigInteger),
    Column("off_why", Text, nullable=False, server_default=""),
    # The process with the lease, and the lease's end.
    Column("leased_by", Text),
    Column("leased_until", BigInteger),
    sqlite_autoincrement=True,
)

#: Deliveries: an event for a webhook; ended ones are deleted after some days.
deliveries = Table(
    "webhook_deliveries",
    metadata,
    _id(),
    # The event's id, by which a receiver detects duplicates.
    Column("message", String(40), nullable=False, unique=True),
    Column("webhook_id", _NUMBER, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column("about", String(10), nullable=False),
    Column("type", String(30), nullable=False),
    # The alarm that begins or ends: its events are sent in order.
    Column("alarm", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Column("page", Text, nullable=False),
    # As JSON.
    Column("data", Text, nullable=False),
    # "waiting" → "sent" or "given up".
    Column("state", String(10), nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("next_at", BigInteger, nullable=False),
    # The result of the last try.
    Column("tried_at", BigInteger),
    Column("said", Text, nullable=False, server_default=""),
    Column("ended_at", BigInteger),
    Index("ix_webhook_deliveries_webhook", "webhook_id", "id"),
    Index("ix_webhook_deliveries_ended", "ended_at"),
    _partial_index("ix_webhook_deliveries_waiting", "state = 'waiting'", "webhook_id", "next_at"),
    sqlite_autoincrement=True,
)

#: Alarms that stand: each begin is sent once, and each end is detected.
alarms = Table(
    "alarms",
    metadata,
    # "halt:bridge:orders"; "": the row with the number of the last poll (webhook_rows.py).
    Column("key", Text, primary_key=True),
    Column("about", String(10), nullable=False),
    Column("name", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    # As JSON.
    Column("data", Text, nullable=False),
)
