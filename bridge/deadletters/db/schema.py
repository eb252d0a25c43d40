"""The tables of the dead-letter store.

What many letters share is stored once: a *kind* is what failed, where and how. Filters and groups are answered from
kinds and from *tallies*, which every change of a status updates in its own transaction, so no question scans
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
#: SQLite numbers rows by itself where the primary key is an INTEGER.
_NUMBER: Final = BigInteger().with_variant(Integer, "sqlite")


def _id() -> Column[int]:
    return Column("id", _NUMBER, primary_key=True, autoincrement=True)


#: One row a fact about the database itself: which Kafka its letters are of.
facts = Table("facts", metadata, Column("name", String(50), primary_key=True), Column("value", Text, nullable=False))

#: Failures that are one thing to mend: handler, class of the exception, and the place that raised it.
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
    # Mended in this version of the handlers' code: its letters go back once workers report it.
    Column("fixed_in", Text),
    Column("fixed_at", BigInteger),
    Column("fixed_by", Text),
    # The plan by which they went back, and when one of them failed again in that version.
    Column("fixed_plan", _NUMBER),
    Column("regressed_at", BigInteger),
    # When it was noticed that it is new, for webhooks; NULL: not yet.
    Column("told_at", BigInteger),
    Index("ix_groups_untold", "id", sqlite_where=text("told_at IS NULL"), postgresql_where=text("told_at IS NULL")),
    # An id that was deleted is never another's.
    sqlite_autoincrement=True,
)

#: What letters have in common that is asked for.
kinds = Table(
    "kinds",
    metadata,
    _id(),
    Column("digest", LargeBinary(16), nullable=False, unique=True),
    Column("group_id", _NUMBER, ForeignKey("groups.id"), nullable=False, index=True),
    Column("handler", Text, nullable=False),
    Column("topic", Text, nullable=False),
    # "bridge", or who else wrote it (bridge.formats.foreign_dead_letter).
    Column("origin", String(20), nullable=False),
    # The consumer group that handed it off; a connector's name.
    Column("consumer_group", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("error_class", Text, nullable=False),
    Column("version", Text, nullable=False),
    # Of the failures within the group (bridge.deadletters.model.fingerprint).
    Column("cause", String(12), nullable=False, server_default="unknown"),
)

#: Causes of groups that are marked as fixed in a version, or have failed in it again: as a whole group is, in `groups`.
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

#: How many letters of a kind have a status; kept by whoever changes one, in the same transaction.
tallies = Table(
    "tallies",
    metadata,
    Column("kind_id", _NUMBER, ForeignKey("kinds.id"), primary_key=True, autoincrement=False),
    Column("status", String(10), primary_key=True),
    Column("count", BigInteger, nullable=False),
)

#: How many failures of a kind fell into an hour (of Unix time).
hours = Table(
    "hours",
    metadata,
    Column("kind_id", _NUMBER, ForeignKey("kinds.id"), primary_key=True, autoincrement=False),
    Column("hour", Integer, primary_key=True, autoincrement=False, index=True),
    Column("count", BigInteger, nullable=False),
)

#: Tracebacks, each once: all letters of a fault have the same, their messages apart.
tracebacks = Table(
    "tracebacks",
    metadata,
    _id(),
    Column("digest", LargeBinary(16), nullable=False, unique=True),
    Column("text", Text, nullable=False),
)

#: One row a delivery that is or was a dead letter, as it failed last.
letters = Table(
    "letters",
    metadata,
    _id(),
    # Of its identity: consumer group, source topic and its log, partition, offset, handler.
    Column("digest", LargeBinary(16), nullable=False, unique=True),
    Column("kind_id", _NUMBER, ForeignKey("kinds.id"), nullable=False),
    Column("status", String(10), nullable=False),
    Column("status_at", BigInteger, nullable=False),
    Column("topic_id", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("timestamp", BigInteger),
    Column("key", LargeBinary),
    # 8 bytes of the key's digest, as a number: keys may be too long for an index.
    Column("key_digest", BigInteger),
    # NULL where `value_size` is above the limit (it is read from Kafka on demand), or -1: a tombstone.
    Column("value", LargeBinary),
    Column("value_size", BigInteger, nullable=False),
    # The producer's own, as bridge.deadletters.model.stored_letter packs them.
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
    # Where its last record lies.
    Column("letter_topic", Text, nullable=False),
    Column("letter_partition", Integer, nullable=False),
    Column("letter_offset", BigInteger, nullable=False),
    # How many records it has in Kafka: one a death, and one more for each that a crash has written twice.
    Column("occurrences", Integer, nullable=False),
    # How often it died: once, and again after replays (`failures` has the ones before the last).
    Column("failures", Integer, nullable=False),
    # The plan that sends it back, while it is "replaying"; else the last one that did.
    Column("plan_id", _NUMBER),
    # By what it had been asked to run though it was done (a redrive); NULL: it was not.
    Column("again", Text),
    Index("ix_letters_kind", "kind_id", "status", "failed_at", "id"),
    Index("ix_letters_status", "status", "failed_at", "id"),
    Index("ix_letters_failed", "failed_at", "id"),
    Index("ix_letters_place", "partition", "offset"),
    Index("ix_letters_key", "key_digest", "failed_at"),
    Index("ix_letters_ended", "status", "status_at"),
    Index(
        "ix_letters_again",
        "kind_id",
        "status",
        sqlite_where=text("failures > 1"),
        postgresql_where=text("failures > 1"),
    ),
    Index(
        "ix_letters_replaying",
        "plan_id",
        "id",
        sqlite_where=text("status = 'replaying'"),
        postgresql_where=text("status = 'replaying'"),
    ),
    sqlite_autoincrement=True,
)

#: How a letter failed before it failed as it did last.
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
    # The plan that sent it back after this failure, and whose replay failed as the next one says.
    Column("plan_id", _NUMBER),
    # What failed then, where another value failed after it: it was mended. NULL in `value_size`: it was the same one.
    Column("value", LargeBinary),
    Column("value_size", BigInteger),
)

#: Values that plans send in the place of a letter's own, which stays as it is until one of these fails in turn.
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

#: How far dead-letter topics are recorded, written with what was recorded: so no record counts twice.
positions = Table(
    "positions",
    metadata,
    # Whose letters alone were recorded of it; "": everybody's. Groups that share topic and database have a place each.
    Column("consumer_group", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("topic_id", String(40), primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("next", BigInteger, nullable=False),
    # The leader epoch that wrote the record before it, by which Kafka tells a log that went back; -1: not known.
    Column("epoch", Integer, nullable=False),
    # Records that Kafka dropped before they were recorded (retention).
    Column("missed", BigInteger, nullable=False),
    # When that was last found; NULL: never.
    Column("missed_at", BigInteger),
    Column("at", BigInteger, nullable=False),
)

#: What was asked for, with the letters that it is about frozen (`items`), and how far it is.
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
    # As JSON: the filter or ids that were asked for, the options (rate, canary, target), what was counted.
    Column("asked", Text, nullable=False),
    Column("options", Text, nullable=False),
    Column("counts", Text, nullable=False),
    # Why it stopped, if it did.
    Column("stopped", Text, nullable=False, server_default=""),
    Column("wave", Integer, nullable=False, server_default="0"),
    Column("began_at", BigInteger),
    Column("ended_at", BigInteger),
    # The process that applies it, and until when nobody else may.
    Column("leased_by", Text),
    Column("leased_until", BigInteger),
    sqlite_autoincrement=True,
)

#: One row a delivery of a plan.
items = Table(
    "items",
    metadata,
    Column("plan_id", _NUMBER, ForeignKey("plans.id"), primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    # NULL for what was never a letter (a redrive): then `place` says which delivery.
    Column("letter_id", _NUMBER, index=True),
    Column("place", Text),
    # How often the letter had died when the plan was made: one that has died since is not the one that was seen.
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("wave", SmallInteger, nullable=False, server_default="0"),
    # "waiting" → "claimed" → "sent" → an outcome: "done", "dead", "discarded", "unknown"; or "skipped", "refused".
    Column("state", String(10), nullable=False),
    Column("why", Text, nullable=False, server_default=""),
    # What goes back one after another has a lane (bridge.deadletters.model.plan_order); NULL: it is free of all others.
    Column("lane", BigInteger),
    # Whether one ahead of it in its lane has not ended; and where in the plan the one behind it is, until that may go.
    Column("held", Boolean, nullable=False, server_default=false()),
    Column("next", Integer),
    Column("number", Integer),
    Column("sent_topic", Text),
    Column("sent_partition", Integer),
    Column("sent_offset", BigInteger),
    Column("sent_at", BigInteger),
    Column("ended_at", BigInteger),
    Index("ix_items_state", "plan_id", "state", "held", "position"),
    Index(
        "ix_items_next",
        "plan_id",
        "state",
        sqlite_where=text("next IS NOT NULL"),
        postgresql_where=text("next IS NOT NULL"),
    ),
    Index(
        "ix_items_lane",
        "lane",
        sqlite_where=text("lane IS NOT NULL AND state IN ('claimed', 'sent')"),
        postgresql_where=text("lane IS NOT NULL AND state IN ('claimed', 'sent')"),
    ),
    Index(
        "ix_items_place",
        "place",
        sqlite_where=text("place IS NOT NULL AND state IN ('claimed', 'sent')"),
        postgresql_where=text("place IS NOT NULL AND state IN ('claimed', 'sent')"),
    ),
)

#: Who did what, when: never deleted, also when the letter is.
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
    # The letter in words, for when its row is gone: `orders-3-1234:orders.handlers.charge`.
    Column("letter", Text, nullable=False, server_default=""),
    Column("group_id", _NUMBER, index=True),
    Column("plan_id", _NUMBER, index=True),
    sqlite_autoincrement=True,
)

#: Who may sign in to the console.
users = Table(
    "users",
    metadata,
    _id(),
    # In lower case.
    Column("name", String(100), nullable=False, unique=True),
    # "viewer", "operator", "admin".
    Column("role", String(10), nullable=False),
    # As argon2 writes it, with its salt and its parameters; or the link by which one is chosen
    # (deadletters/accounts/user_account.py).
    Column("password", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    sqlite_autoincrement=True,
)

#: Who is signed in: by a hash of the cookie, so that a copy of the database opens nothing.
sessions = Table(
    "sessions",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    # NULL: signed in by the one-time link of a console without users.
    Column("user_id", _NUMBER, ForeignKey("users.id", ondelete="CASCADE"), index=True),
    Column("at", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False, index=True),
)

#: Whom an issuer of OpenID Connect has signed in, by a hash of the cookie; apart from `sessions`, where a version that
#: does not know of issuers would take them for whoever has come by the one-time link.
issued = Table(
    "issued_sessions",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("issuer", Text, nullable=False),
    # For the trail; what they may, as the issuer said when they signed in.
    Column("name", Text, nullable=False),
    Column("role", String(20), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False, index=True),
)

#: What programs sign in with, by its hash.
tokens = Table(
    "tokens",
    metadata,
    _id(),
    Column("digest", LargeBinary(32), nullable=False, unique=True),
    # What it is for, in its maker's words.
    Column("name", Text, nullable=False),
    Column("role", String(10), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    Column("until", BigInteger, nullable=False),
    # Roughly; NULL: never.
    Column("used_at", BigInteger),
    sqlite_autoincrement=True,
)

#: What programs have asked to be done, by their idempotency key: the same is done once, and answered the same.
requests = Table(
    "requests",
    metadata,
    # Of the token, and the key.
    Column("digest", LargeBinary(32), primary_key=True),
    # Of what was asked: another thing under the same key is refused.
    Column("asked", LargeBinary(32), nullable=False),
    Column("until", BigInteger, nullable=False, index=True),
    # Who does it, and until when nobody else may.
    Column("claimed_by", LargeBinary(16), nullable=False),
    Column("claimed_until", BigInteger, nullable=False),
    # The entry that says that it was done, written with it; NULL: it was not, or it is nothing of the database.
    Column("trail_id", _NUMBER),
    # What was answered; NULL: nothing yet.
    Column("status", SmallInteger),
    Column("answer", Text),
)

#: Addresses on the web that are told of alarms.
webhooks = Table(
    "webhooks",
    metadata,
    _id(),
    Column("name", String(100), nullable=False, unique=True),
    # Whole: a part of it may be a password, and nobody is shown it.
    Column("address", Text, nullable=False),
    # "standard", "slack", "pagerduty".
    Column("format", String(10), nullable=False),
    # What it tells of, with commas between them.
    Column("about", Text, nullable=False),
    # What is signed with, or the receiver's key; kept as it is, since it is needed so.
    Column("secret", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    # When it was switched off, and why; NULL: it is on.
    Column("off_at", BigInteger),
    Column("off_why", Text, nullable=False, server_default=""),
    # The process that sends what is due for it, and until when nobody else may.
    Column("leased_by", Text),
    Column("leased_until", BigInteger),
    sqlite_autoincrement=True,
)

#: One row an event and a webhook that is told of it; those that have ended go after some days.
deliveries = Table(
    "webhook_deliveries",
    metadata,
    _id(),
    # By which a receiver knows that it has it already.
    Column("message", String(40), nullable=False, unique=True),
    Column("webhook_id", _NUMBER, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column("about", String(10), nullable=False),
    Column("type", String(30), nullable=False),
    # Of the alarm that begins or ends with it: its own are sent one after another.
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
    # What the last try came to.
    Column("tried_at", BigInteger),
    Column("said", Text, nullable=False, server_default=""),
    Column("ended_at", BigInteger),
    Index("ix_webhook_deliveries_webhook", "webhook_id", "id"),
    Index("ix_webhook_deliveries_ended", "ended_at"),
    Index(
        "ix_webhook_deliveries_waiting",
        "webhook_id",
        "next_at",
        sqlite_where=text("state = 'waiting'"),
        postgresql_where=text("state = 'waiting'"),
    ),
    sqlite_autoincrement=True,
)

#: What was noticed and has not ended: by it the end of each is noticed, and that it begins is told once.
alarms = Table(
    "alarms",
    metadata,
    # "halt:bridge:orders"; "": the row that numbers the looks (store.alarms).
    Column("key", Text, primary_key=True),
    Column("about", String(10), nullable=False),
    Column("name", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    # As JSON.
    Column("data", Text, nullable=False),
)
