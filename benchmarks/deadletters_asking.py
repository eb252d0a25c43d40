"""What is asked of a desk with a million dead letters: how long a call of the library takes, in both databases."""

import os
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Final

from benchmarks.deadletters_million import NOW, fill
from bridge.deadletters.db.database import Database
from bridge.deadletters.inspection.failure_groups import FailureGroups, GroupOrder
from bridge.deadletters.inspection.letter_lookup import LetterLookup
from bridge.deadletters.inspection.letter_statistics import LetterTotals
from bridge.deadletters.model.failure_growth import HOUR
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterCursor, LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from tests.servers.postgres import PostgresServer

LETTERS: Final = int(os.environ.get("LETTERS", "1000000"))
TIMES: Final = 40
DAY: Final = 24 * HOUR

OPEN: Final = (LetterStatus.OPEN,)
BUSY: Final = "shop.orders.handlers.on_0"

#: What a person at the desk asks for.
FILTERS: Final = {
    "everything": ALL_LETTERS,
    "open": LetterFilter(statuses=OPEN),
    "replaying": LetterFilter(statuses=(LetterStatus.REPLAYING,)),
    "the largest group": LetterFilter(groups=(1,)),
    "a small group, open": LetterFilter(groups=(480,), statuses=OPEN),
    "a group that is none": LetterFilter(groups=(99_999,)),
    "a topic (45 groups)": LetterFilter(topics=("topic3",)),
    "a reason (600 kinds)": LetterFilter(reasons=("permanent",)),
    "an exception, by its last part": LetterFilter(exceptions=("Error7",)),
    "a version, open": LetterFilter(versions=("1.3",), statuses=OPEN),
    "origin (every kind)": LetterFilter(origins=("bridge",)),
    "topic, reason, version, open": LetterFilter(
        topics=("topic3",), reasons=("permanent",), versions=("1.0",), statuses=OPEN
    ),
    "the last hour": LetterFilter(since=NOW - HOUR),
    "a day, two months ago": LetterFilter(since=NOW - 60 * DAY, until=NOW - 59 * DAY),
    "a reason, a day two months ago, open": LetterFilter(
        reasons=("permanent",), statuses=OPEN, since=NOW - 60 * DAY, until=NOW - 59 * DAY
    ),
    "a key (common)": LetterFilter(key=b"customer-1"),
    "a key (rare)": LetterFilter(key=b"customer-77777"),
    "a key, a topic": LetterFilter(key=b"customer-1", topics=("topic3",)),
    "a word of all": LetterFilter(text="order"),
    "a word of a third": LetterFilter(text="declined"),
    "a word of the oldest fifth": LetterFilter(text="legacy"),
    "a word of 20": LetterFilter(text="unicorn"),
    "a word of one": LetterFilter(text="777777"),
    "a word of none": LetterFilter(text="nowhere"),
    "three words": LetterFilter(text="declined bank 42"),
    "a word of all, a small group": LetterFilter(text="order", groups=(480,)),
    "a word of the oldest fifth, a topic, open": LetterFilter(text="legacy", topics=("topic3",), statuses=OPEN),
    "a word of the oldest fifth, a day of last week": LetterFilter(
        text="legacy", since=NOW - 7 * DAY, until=NOW - 6 * DAY
    ),
    "a header (common)": LetterFilter(headers=(("tenant", "blue"),)),
    "a header (1 in 200), open": LetterFilter(headers=(("tenant", "green7"),), statuses=OPEN),
    "a header, a word, a topic": LetterFilter(headers=(("tenant", "green7"),), text="declined", topics=("topic3",)),
}


def main() -> None:
    """Both databases, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        _ask(f"sqlite:///{folder}/letters.db")
    with PostgresServer() as server:
        _ask(server.url)


def _ask(url: str) -> None:
    database = Database(url)
    print(f"-- {database.dialect}, {LETTERS:,} letters", flush=True)
    fill(database, LETTERS)
    letters = LetterLookup(database)
    for name, asked in FILTERS.items():
        _timed(f"list: {name}", lambda asked=asked: len(letters.page(asked).letters))
        _timed(f"  its 2nd to 5th page: {name}", _paging(letters, asked))
        _timed(f"  count: {name}", lambda asked=asked: letters.count(asked))
    _others(database)
    database.close()


def _others(database: Database) -> None:
    groups, totals, letters = (
        FailureGroups(database, lambda: NOW / 1000),
        LetterTotals(database, lambda: NOW / 1000),
        LetterLookup(database),
    )
    _timed("groups", lambda: len(groups.all()))
    _timed(
        "groups: a handler, open, newest",
        lambda: len(groups.all(LetterFilter(handlers=(BUSY,), statuses=OPEN), GroupOrder.NEWEST)),
    )
    _timed("a group", lambda: groups.one(7).count)
    _timed("stats", lambda: totals.stats().groups)
    _timed("a letter in full", lambda: letters.one(LETTERS // 2).listed.id)
    _timed("a letter by its record", lambda: len(letters.at("topic3", 5, LETTERS // 2 + 5)))


def _paging(letters: LetterLookup, asked: LetterFilter) -> Callable[[], object]:
    """Each call is the next page; from the first again where there is none, or after four."""
    state: list[tuple[int, LetterCursor | None]] = [(0, letters.page(asked).next)]

    def page() -> int:
        number, before = state[0]
        found = letters.page(asked, before=before)
        state[0] = (number + 1, found.next) if number < 4 else (0, None)
        return len(found.letters)

    return page


def _timed(name: str, work: Callable[[], object]) -> None:
    work()
    took: list[float] = []
    for _ in range(TIMES):
        began = time.perf_counter()
        found = work()
        took.append((time.perf_counter() - began) * 1000)
    took.sort()
    print(f"{name:<68} p50 {median(took):>7.1f} ms  p95 {took[int(TIMES * 0.95)]:>7.1f} ms   {found}", flush=True)


if __name__ == "__main__":
    main()
