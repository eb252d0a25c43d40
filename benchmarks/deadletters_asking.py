"""What is asked of a desk with a million dead letters: how long a call of the library takes, in both databases."""

import os
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Final

from benchmarks.deadletters_million import NOW, fill
from bridge.deadletters.letters.filters import EVERYTHING, Cursor, Filter
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.questions.groups import Groups
from bridge.deadletters.questions.growing import HOUR
from bridge.deadletters.questions.letters import Letters
from bridge.deadletters.questions.ranking import Order
from bridge.deadletters.questions.totals import Totals
from bridge.deadletters.store.database import Database
from tests.servers.postgres import PostgresServer

LETTERS: Final = int(os.environ.get("LETTERS", "1000000"))
TIMES: Final = 40
DAY: Final = 24 * HOUR

OPEN: Final = (Status.OPEN,)
BUSY: Final = "shop.orders.handlers.on_0"

#: What a person at the desk asks for.
FILTERS: Final = {
    "everything": EVERYTHING,
    "open": Filter(statuses=OPEN),
    "replaying": Filter(statuses=(Status.REPLAYING,)),
    "the largest group": Filter(groups=(1,)),
    "a small group, open": Filter(groups=(480,), statuses=OPEN),
    "a group that is none": Filter(groups=(99_999,)),
    "a topic (45 groups)": Filter(topics=("topic3",)),
    "a reason (600 kinds)": Filter(reasons=("permanent",)),
    "an exception, by its last part": Filter(exceptions=("Error7",)),
    "a version, open": Filter(versions=("1.3",), statuses=OPEN),
    "origin (every kind)": Filter(origins=("bridge",)),
    "topic, reason, version, open": Filter(
        topics=("topic3",), reasons=("permanent",), versions=("1.0",), statuses=OPEN
    ),
    "the last hour": Filter(since=NOW - HOUR),
    "a day, two months ago": Filter(since=NOW - 60 * DAY, until=NOW - 59 * DAY),
    "a reason, a day two months ago, open": Filter(
        reasons=("permanent",), statuses=OPEN, since=NOW - 60 * DAY, until=NOW - 59 * DAY
    ),
    "a key (common)": Filter(key=b"customer-1"),
    "a key (rare)": Filter(key=b"customer-77777"),
    "a key, a topic": Filter(key=b"customer-1", topics=("topic3",)),
    "a word of all": Filter(text="order"),
    "a word of a third": Filter(text="declined"),
    "a word of the oldest fifth": Filter(text="legacy"),
    "a word of 20": Filter(text="unicorn"),
    "a word of one": Filter(text="777777"),
    "a word of none": Filter(text="nowhere"),
    "three words": Filter(text="declined bank 42"),
    "a word of all, a small group": Filter(text="order", groups=(480,)),
    "a word of the oldest fifth, a topic, open": Filter(text="legacy", topics=("topic3",), statuses=OPEN),
    "a word of the oldest fifth, a day of last week": Filter(text="legacy", since=NOW - 7 * DAY, until=NOW - 6 * DAY),
    "a header (common)": Filter(headers=(("tenant", "blue"),)),
    "a header (1 in 200), open": Filter(headers=(("tenant", "green7"),), statuses=OPEN),
    "a header, a word, a topic": Filter(headers=(("tenant", "green7"),), text="declined", topics=("topic3",)),
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
    letters = Letters(database)
    for name, asked in FILTERS.items():
        _timed(f"list: {name}", lambda asked=asked: len(letters.page(asked).letters))
        _timed(f"  its 2nd to 5th page: {name}", _paging(letters, asked))
        _timed(f"  count: {name}", lambda asked=asked: letters.count(asked))
    _others(database)
    database.close()


def _others(database: Database) -> None:
    groups, totals, letters = (
        Groups(database, lambda: NOW / 1000),
        Totals(database, lambda: NOW / 1000),
        Letters(database),
    )
    _timed("groups", lambda: len(groups.all()))
    _timed(
        "groups: a handler, open, newest",
        lambda: len(groups.all(Filter(handlers=(BUSY,), statuses=OPEN), Order.NEWEST)),
    )
    _timed("a group", lambda: groups.one(7).count)
    _timed("stats", lambda: totals.stats().groups)
    _timed("a letter in full", lambda: letters.one(LETTERS // 2).listed.id)
    _timed("a letter by its record", lambda: len(letters.at("topic3", 5, LETTERS // 2 + 5)))


def _paging(letters: Letters, asked: Filter) -> Callable[[], object]:
    """Each call is the next page; from the first again where there is none, or after four."""
    state: list[tuple[int, Cursor | None]] = [(0, letters.page(asked).next)]

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
