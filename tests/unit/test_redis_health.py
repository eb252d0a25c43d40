"""What is made of Redis's answers: health, state, what is stuck and what has been under way longest."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from redis.exceptions import BusyLoadingError, OutOfMemoryError, ReadOnlyError, ResponseError

from bridge.errors import LedgerUnavailable
from bridge.jobs.stuck_deliveries import StuckOffsets, find_stuck_offsets
from bridge.ledger.fate_rules import Fate
from bridge.ledger.handoff_times import OldestDelivery, OldestDeliveryFinder
from bridge.ledger.ledger_epoch import LedgerState, LedgerStateReader
from bridge.ledger.ledger_layout import Account
from bridge.ledger.redis_connection import RedisConnection, explain_refused_login
from bridge.ledger.redis_health import RedisHealth, read_redis_health
from lossless.lua import Script

ACCOUNT = Account("charge", "orders", "id", 0)


class Pipe:
    """Takes every command, and gives the answers that it was made with; of a sorted set's scores those of its notes."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: self

    def zmscore(self, key: str, members: Sequence[str]) -> None:
        notes = dict(self._answers[2])
        self._answers = [[notes.get(member.encode()) for member in members]]

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        return list(self._answers)


class Ledger:
    """A ledger whose Redis gives `answers`, and of which some offsets are handed."""

    lost, where, timeout = 2, "here", 5.0

    def __init__(self, *answers: Any, handed: Sequence[int] = ()) -> None:
        self._answers, self._handed = answers, handed
        self.narrowed: list[Any] = []

    @contextmanager
    def asking(self, doing: str) -> Iterator[Any]:
        yield Pipe(self._answers)

    def index_key(self, account: Account) -> str:
        return "index"

    def runs(self, account: Account, wanted: Any, first: int, last: int) -> Iterator[range]:
        return (range(offset, offset + 1) for offset in self._handed if first <= offset <= last)

    def fates_of(self, questions: Any) -> list[bytes]:
        return [bytes(Fate.HANDED if o in self._handed else Fate.DONE for o in offsets) for _, offsets in questions]

    def run(self, doing: str, script: Any, keys: Any, args: Any) -> None:
        self.narrowed = list(args)

    def check_synced(self, answer: Any, seconds: float) -> None:
        assert answer == [1, 0]


def of(*answers: Any, handed: Sequence[int] = ()) -> Any:
    return Ledger(*answers, handed=handed)


@pytest.mark.parametrize(
    ("memory", "persistence", "stats", "found"),
    [
        ({"used_memory": 10}, {}, {}, RedisHealth(10, 0, None)),
        ({"used_memory": "10", "maxmemory": "20"}, {"aof_last_write_status": "ok"}, {}, RedisHealth(10, 20, None)),
        (
            {"used_memory": 1},
            {"aof_last_write_status": "err", "rdb_last_bgsave_status": "err"},
            {},
            RedisHealth(1, 0, "aof_last_write_status is 'err', rdb_last_bgsave_status is 'err'"),
        ),
        (
            {"used_memory": 1},
            {"rdb_last_bgsave_status": "err", "rdb_last_save_time": "100", "rdb_changes_since_last_save": 7},
            {},
            RedisHealth(1, 0, "rdb_last_bgsave_status is 'err'", None, 0, None, 100.0, 7),
        ),
        (
            {"used_memory": 1, "maxmemory_policy": "volatile-lru"},
            {},
            {"evicted_keys": "3"},
            RedisHealth(1, 0, None, "volatile-lru", 3),
        ),
        (
            {"used_memory": 1, "maxmemory": 9, "maxmemory_policy": "volatile-lru"},
            {},
            {},
            RedisHealth(1, 9, None, "volatile-lru"),
        ),
        (
            {"used_memory": 1, "maxmemory": 0, "maxmemory_policy": "volatile-lru"},
            {},
            {},
            RedisHealth(1, 0, None, None, 0, "volatile-lru"),
        ),
        (
            {"used_memory": 1, "maxmemory_policy": "noeviction"},
            {},
            {"evicted_keys": 3},
            RedisHealth(1, 0, None, None, 3),
        ),
    ],
)
def test_health_is_memory_what_does_not_come_to_disk_and_what_is_evicted(
    memory: Any, persistence: Any, stats: Any, found: RedisHealth
):
    assert read_redis_health(of(memory, persistence, stats)) == found


SERVER, REPLICATION = {"run_id": "r", "uptime_in_seconds": 60}, {"master_replid": "h"}


def test_a_state_is_the_data_sets_the_servers_and_the_connections():
    states = LedgerStateReader(of(True, b"e-1", b"7", SERVER, REPLICATION), "writes")
    assert states.now() == LedgerState("e-1", 7, "r", "h", 2)


def test_a_full_redis_needs_no_epoch_where_there_is_one():
    full = OutOfMemoryError("command not allowed")
    assert LedgerStateReader(of(full, b"e-1", None, SERVER, REPLICATION), "writes").now() == LedgerState(
        "e-1", 0, "r", "h", 2
    )
    with pytest.raises(OutOfMemoryError):
        LedgerStateReader(of(full, None, None, SERVER, REPLICATION), "writes").now()


def test_nothing_was_forgotten_since_the_later_of_the_servers_start_and_the_data_sets(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1_000.0)
    assert LedgerStateReader(of(True, b"e-900", None, SERVER, REPLICATION), "writes").since() == 940
    assert LedgerStateReader(of(True, b"e-990", None, SERVER, REPLICATION), "writes").since() == 990
    assert LedgerStateReader(of(True, b"of-an-older-version", None, SERVER, REPLICATION), "writes").since() == 940


def test_waiting_for_the_disk_ends_before_the_answer_is_given_up():
    states = LedgerStateReader(of(1, [1, 0], True, b"e-1", b"8", SERVER, REPLICATION), "writes")
    assert states.synced(2.5).writes == 8
    with pytest.raises(ValueError, match="must be less than"):
        states.synced(5)


FIELDS = {b"0": b"0-9", b"1": b"5-9", b"9": b"20-29"}


@pytest.mark.parametrize(
    ("now", "seconds", "found"),
    [
        # Never too early: a step is ten seconds, and what was handed at its end counts.
        (69, 60, []),
        (70, 60, [StuckOffsets(0, [3])]),
        (80, 60, [StuckOffsets(0, [3]), StuckOffsets(10, [7])]),
        (160, 60, [StuckOffsets(0, [3]), StuckOffsets(10, [7]), StuckOffsets(90, [22])]),
    ],
)
def test_what_is_stuck_was_handed_long_enough_ago_and_not_again_since(
    now: int, seconds: int, found: list[StuckOffsets]
):
    assert find_stuck_offsets(of((now, 0), FIELDS, handed=[3, 7, 22]), ACCOUNT, seconds) == found


def test_of_a_step_in_which_nothing_is_in_flight_nothing_is_kept():
    ledger = of((1_000, 0), FIELDS, handed=[22])
    assert find_stuck_offsets(ledger, ACCOUNT, 60) == [StuckOffsets(90, [22])]
    assert ledger.narrowed == [0, "0-9", "", 1, "5-9", "", 9, "20-29", "22-22"]


@pytest.mark.parametrize(
    ("handed", "waits", "found"),
    [
        ([], [], None),
        ([3, 22], [], OldestDelivery(3, 100)),
        # One that waits for its retry is not asked for; when that is due, it counts from then on.
        ([3, 22], [(b"3", 150.0)], OldestDelivery(22, 10)),
        ([3], [(b"3", 150.0)], None),
        ([3, 22], [(b"3", 95.0)], OldestDelivery(22, 10)),
        ([3, 22], [(b"3", 60.0)], OldestDelivery(3, 40)),
        ([22], [(b"3", 60.0)], OldestDelivery(22, 10)),
    ],
)
def test_the_oldest_under_way_waits_for_no_retry(handed: list[int], waits: list[Any], found: OldestDelivery | None):
    ledger = of((100, 0), FIELDS, waits, handed=handed)
    assert OldestDeliveryFinder(ledger).find_delivery(ACCOUNT) == found


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://:secret@one:6380/3", "one:6380"),
        ("redis+socket:///run/redis.sock?virtual_host=2", "/run/redis.sock"),
        ("rediss://one", "one:6379"),
    ],
)
def test_where_it_is_is_said_without_the_password(url: str, where: str):
    connection = RedisConnection(url, 5, "LEDGER_URL")
    assert connection.where == where
    connection.close()


def test_an_error_that_ends_with_a_full_stop_is_followed_by_the_advice_without_a_second_one():
    connection = RedisConnection("redis://127.0.0.1:1/0", 5, "LEDGER_URL")
    with pytest.raises(LedgerUnavailable, match=r"[^.]; start it or fix the network\.$"):
        connection.run("read a fate", Script("return 1"), [], [])
    connection.close()


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (
            "AUTH <password> called without any password configured for the default user. Are you sure?",
            "LEDGER_URL has a password, and this Redis has none: take it out of LEDGER_URL, or set requirepass",
        ),
        ("Authentication required.", "this Redis needs a password, and LEDGER_URL has none: write redis://:PASSWORD@"),
        ("invalid username-password pair or user is disabled.", "refuses the user or password of LEDGER_URL"),
        ("Connection refused", ""),
    ],
)
def test_a_refused_login_is_said_with_the_setting_that_is_wrong(refusal: str, words: str):
    assert words in explain_refused_login(refusal, "LEDGER_URL")
    assert bool(words) == bool(explain_refused_login(refusal, "LEDGER_URL"))


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (OutOfMemoryError("command not allowed"), "Redis is full and refuses writes: raise its maxmemory"),
        (ResponseError("MISCONF Errors writing to the AOF file"), "Redis cannot save its data and refuses writes: see"),
        (BusyLoadingError("Redis is loading the dataset in memory"), "Redis loads its files after a start: wait"),
        (ReadOnlyError("You can't write against a replica"), "it is a replica: point LEDGER_URL at the primary"),
    ],
    ids=["full", "cannot save", "loading", "a replica"],
)
def test_a_refusal_of_the_ledgers_redis_ends_with_its_meaning_and_remedy(refusal: Exception, words: str):
    connection = RedisConnection("redis://127.0.0.1:1/0", 5, "LEDGER_URL")
    with pytest.raises(LedgerUnavailable, match=re.escape(words)), connection.asking("mark a fate"):
        raise refusal
    connection.close()
