"""Letters made at random, in the database and as plain values; and what a filter means, said in Python."""

from dataclasses import dataclass
from random import Random
from typing import Any, Final

from sqlalchemy import Connection, insert

from bridge.deadletters.db import search_index
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.model import search_words
from bridge.deadletters.model.digest import key_digest
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus, pack_headers
from bridge.formats.delivery import Headers
from tests.desk import rows

HANDLERS: Final = ("orders.handlers.charge", "orders.handlers.notify", "")
TOPICS: Final = ("orders", "refunds")
EXCEPTIONS: Final = (
    "builtins.ValueError",
    "bank.CardDeclined",
    "shop.CardDeclined",
    "bank.carddeclined",
    "TimeoutError",
)
REASONS: Final = ("exhausted", "permanent")
VERSIONS: Final = ("", "1.4.1", "1.4.2")
ORIGINS: Final = ("bridge", "spring")
CONSUMER_GROUPS: Final = ("bridge", "payments")
PLANS: Final = (3, 50)
KEYS: Final = (None, b"", b"4711", b"\x00\xff", "schlüssel".encode())
HEADERS: Final[tuple[Headers, ...]] = (
    (),
    (("tenant", b"blue"),),
    (("tenant", b"green"), ("trace", b"a-1")),
    (("tenant", None), ("trace", b"\xff")),
    (("tenant", b""),),
)
MESSAGES: Final = (
    "card declined",
    "the bank's host timed out",
    "Überweisung abgelehnt_1",
    "",
    "card declined by bank 4711",
)
VALUES: Final = (b'{"id": 4711, "name": "Zo\xc3\xab"}', b"\x00card", b"\xff\xfe", None, "naïve ﬁne".encode())
#: Fields of values, each with the positions in `VALUES` of those that have it.
VALUE_FIELDS: Final[dict[tuple[str, str], frozenset[int]]] = {
    ("id", "4711"): frozenset({0}),
    ("name", "Zoë"): frozenset({0}),
    ("id", "1"): frozenset(),
}
CAUSES: Final = ("unknown", "1f0c2b3a4d5e", "other")
TEXTS: Final = ("card", "Card DECLINED", "4711", "überweisung", "zoë", "fine", "timed host", "blue", "nowhere", "1")


@dataclass(frozen=True)
class Made:
    """A letter, with what filters ask for."""

    id: int
    handler: str
    topic: str
    exception: str
    reason: str
    version: str
    origin: str
    consumer_group: str
    cause: str
    group: int
    status: LetterStatus
    key: bytes | None
    headers: Headers
    value: bytes | None
    words: frozenset[str]
    failed_at: int
    runs: int
    died_again: bool
    plans: frozenset[int]


def make(connection: Connection, count: int, seed: int) -> list[Made]:
    """Letters of many kinds, with words in the index; several of them failed in the same millisecond."""
    random = Random(seed)
    for plan in PLANS:
        named = {"by": "", "why": "", "asked": "{}", "options": "{}", "counts": "{}"}
        connection.execute(insert(tables.plans).values(id=plan, what="replay", state="done", at=0, **named))
    return [_one(connection, random, offset) for offset in range(count)]


def _one(connection: Connection, random: Random, offset: int) -> Made:
    pick = random.choice
    kind = {
        "handler": pick(HANDLERS),
        "topic": pick(TOPICS),
        "error_class": pick(EXCEPTIONS),
        "reason": pick(REASONS),
        "version": pick(VERSIONS),
        "origin": pick(ORIGINS),
        "consumer_group": pick(CONSUMER_GROUPS),
        "cause": pick(CAUSES),
    }
    status, key, headers, message = pick(list(LetterStatus)), pick(KEYS), pick(HEADERS), pick(MESSAGES)
    value, failed_at = pick(VALUES), random.randrange(1_000, 1_200)
    kind_id = rows.kind(connection, **kind)
    made = {"key": key, "key_digest": key_digest(key), "headers": pack_headers(headers), "error_message": message}
    runs, plans = 1 + offset % 5, frozenset(plan for plan in PLANS if offset % plan == 0)
    id_ = rows.letter(connection, kind_id, offset, status, failed_at=failed_at, runs=runs, **_valued(value), **made)
    for plan in plans:
        item = {"plan_id": plan, "position": offset, "letter_id": id_, "state": "done"}
        connection.execute(insert(tables.items).values(item))
    if died_again := offset % 7 == 0:
        before = {"letter_id": id_, "number": 1, "kind_id": kind_id, "failed_at": 1, "error_message": "", "runs": 1}
        lies = {"letter_topic": "orders.dlq", "letter_partition": 0, "letter_offset": 0}
        connection.execute(insert(tables.failures).values(before | lies))
    found = search_words.find_letter_words(message, key, headers, value)
    search_index.index_letters(connection, [(id_, found)])
    return Made(
        id_,
        kind["handler"],
        kind["topic"],
        kind["error_class"],
        kind["reason"],
        kind["version"],
        kind["origin"],
        kind["consumer_group"],
        kind["cause"],
        rows.group_of(connection, kind_id),
        status,
        key,
        headers,
        value,
        frozenset(found),
        failed_at,
        runs,
        died_again,
        plans,
    )


def _valued(value: bytes | None) -> dict[str, Any]:
    return {"value": value, "value_size": -1 if value is None else len(value)}


def meant(asked: LetterFilter, letters: list[Made]) -> list[int]:
    """The ids of the letters that a filter means, newest first."""
    found = [each for each in letters if _fits(asked, each)]
    return [each.id for each in sorted(found, key=lambda each: (-each.failed_at, -each.id))]


def _fits(asked: LetterFilter, letter: Made) -> bool:
    one_of = (
        (asked.ids, letter.id),
        (asked.handlers, letter.handler),
        (asked.topics, letter.topic),
        (asked.reasons, letter.reason),
        (asked.versions, letter.version),
        (asked.origins, letter.origin),
        (asked.consumer_groups, letter.consumer_group),
        (asked.causes, letter.cause),
        (asked.groups, letter.group),
        (asked.statuses, letter.status),
    )
    return (
        all(not values or value in values for values, value in one_of)
        and (not asked.exceptions or any(_named(letter.exception, name) for name in asked.exceptions))
        and (asked.key is None or asked.key == letter.key)
        and all((name, value.encode()) in letter.headers for name, value in asked.headers)
        and all(letter.value in [VALUES[at] for at in VALUE_FIELDS[field]] for field in asked.values)
        and set(search_words.split_words(asked.text)) <= letter.words
        and (asked.since is None or letter.failed_at >= asked.since)
        and (asked.until is None or letter.failed_at < asked.until)
        and (not asked.plans or not letter.plans.isdisjoint(asked.plans))
        and (letter.died_again or not asked.died_again)
        and letter.runs >= (asked.attempts or 0)
    )


def _named(exception: str, name: str) -> bool:
    return exception == name or exception.endswith(f".{name}")
