"""Unique names on a real Redis: claims, leases, windows, and the step that makes a delivery and its name done."""

from collections.abc import Iterator
from contextlib import closing

import pytest
import redis

from bridge.errors import LedgerUnavailable
from bridge.ledger.fate_rules import Fate
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import Account
from bridge.ledger.ledger_scripts import Mark, NameMark
from bridge.ledger.name_claims import GRANTED, NameClaim, NameClaims
from tests.processes import eventually

CHARGE = Account("orders.handlers.charge", "orders", "mnB7bUNNTFuKyAPSx1zQ2w", 0)
FIRST, SECOND = "orders-0-7", "orders-0-9"


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    with closing(Ledger(redis_url, "cJkMHIp2QUK5nxJ8V2qXkw", "bridge")) as ledger:
        yield ledger


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        yield client


def test_one_record_has_a_name_until_it_is_released_or_its_lease_ends(ledger: Ledger) -> None:
    claims = NameClaims(ledger)
    key = claims.key("charge", "orders", b"a-1")
    assert claims.claim(key, FIRST, 60) == GRANTED
    assert claims.claim(key, SECOND, 60) == NameClaim("running", FIRST)
    # Its own record, redelivered after a crash.
    assert claims.claim(key, FIRST, 60) == GRANTED
    claims.release(key, SECOND)
    assert claims.claim(key, SECOND, 60) == NameClaim("running", FIRST)
    claims.release(key, FIRST)
    assert claims.claim(key, SECOND, 0.2) == GRANTED
    eventually(lambda: claims.claim(key, FIRST, 60) == GRANTED, 5)


def test_a_name_that_a_record_has_done_stays_done_though_a_late_copy_of_it_runs_and_fails(ledger: Ledger) -> None:
    claims = NameClaims(ledger)
    key = claims.key("charge", "orders", b"a-1")
    ledger.write([Mark(CHARGE, [7], Fate.DONE), NameMark(key, FIRST, 60)])
    assert claims.claim(key, FIRST, 60) == GRANTED
    claims.release(key, FIRST)
    assert claims.claim(key, SECOND, 60) == NameClaim("done", FIRST)


def test_a_replay_that_runs_says_so_and_releases_its_name(ledger: Ledger) -> None:
    claims = NameClaims(ledger)
    key = claims.key("charge", "orders", b"a-1")
    assert claims.claim(key, FIRST, 60, replayed=True) == GRANTED
    assert claims.claim(key, SECOND, 60) == NameClaim("replayed", FIRST)
    claims.release(key, FIRST)
    assert claims.claim(key, SECOND, 60) == GRANTED


def test_a_record_is_given_up_once_it_is_dead_or_discarded_under_any_name_of_its_handler(ledger: Ledger) -> None:
    claims, old = NameClaims(ledger), CHARGE._replace(handler="old.charge")
    accounts = [CHARGE._replace(partition=5), old]
    for account, offset, fate in ((CHARGE, 1, Fate.DONE), (old, 2, Fate.DEAD), (CHARGE, 3, Fate.DISCARDED)):
        ledger.write([Mark(account, [offset], Fate.HANDED)])
        ledger.write([Mark(account, [offset], fate)])
    given_up = [claims.is_given_up(accounts, f"orders-0-{offset}") for offset in range(5)]
    assert given_up == [False, False, True, True, False]
    assert not claims.is_given_up(accounts, "something else")


def test_a_delivery_and_its_name_are_done_in_one_step_for_a_window(ledger: Ledger, client: redis.Redis) -> None:
    claims = NameClaims(ledger)
    key = claims.key("charge", "orders", b"a-1")
    claims.claim(key, FIRST, 60)
    marks: list[Mark | NameMark] = [Mark(CHARGE, [7], Fate.DONE), NameMark(key, FIRST, 3_600)]
    found, named = ledger.write(marks)
    assert (list(found.changed), list(named.changed)) == ([7], [])
    assert ledger.fates(CHARGE, 7, 7) == bytes([Fate.DONE])
    assert 3_590 < client.ttl(key) <= 3_600
    claims.release(key, FIRST)
    assert claims.claim(key, SECOND, 60) == NameClaim("done", FIRST)
    # A repeated write changes nothing but the window's end.
    ledger.write(marks)
    assert claims.claim(key, SECOND, 60) == NameClaim("done", FIRST)
    ledger.write([*marks, NameMark(key, FIRST, 0.05)])
    eventually(lambda: claims.claim(key, SECOND, 60) == GRANTED, 5)


def test_a_full_redis_takes_a_done_name_behind_its_mark(ledger: Ledger, client: redis.Redis) -> None:
    claims = NameClaims(ledger)
    key = claims.key("charge", "orders", b"a-1")
    ledger.write([Mark(CHARGE, [7], Fate.HANDED)])
    claims.claim(key, FIRST, 60)
    try:
        client.config_set("maxmemory", 1)
        ledger.write([Mark(CHARGE, [7], Fate.DONE), NameMark(key, FIRST, 60)])
        with pytest.raises(LedgerUnavailable, match="maxmemory"):
            claims.claim(claims.key("charge", "orders", b"a-2"), SECOND, 60)
    finally:
        client.config_set("maxmemory", 0)
    assert claims.claim(key, SECOND, 60) == NameClaim("done", FIRST)


def test_names_of_another_handler_topic_group_or_cluster_are_others(redis_url: str) -> None:
    ledgers = [Ledger(redis_url, *place) for place in (("c", "g"), ("c", "h"), ("d", "g"), ("cg", ""))]
    places = (("one", "orders"), ("two", "orders"), ("one", "refunds"), ("oneorders", ""))
    keys = {NameClaims(ledger).key(*place, b"a") for ledger in ledgers for place in places}
    assert len(keys) == 16


def test_what_is_no_state_of_a_name_is_refused_in_words(ledger: Ledger, client: redis.Redis) -> None:
    claims = NameClaims(ledger)
    key = claims.key("charge", "orders", b"a-1")
    client.set(key, "x other")
    with pytest.raises(LedgerUnavailable, match="does not know"):
        claims.claim(key, FIRST, 60)


def test_a_name_takes_at_most_two_hundred_bytes_whatever_its_length(ledger: Ledger, client: redis.Redis) -> None:
    claims = NameClaims(ledger)
    before, names = client.info("memory")["used_memory"], 20_000
    for at in range(0, names, 500):
        keys = [claims.key("orders.handlers.charge", "orders", b"%d" % number * 40) for number in range(at, at + 500)]
        ledger.write([NameMark(key, f"orders-0-{at + n + 1_000_000}", 3_600) for n, key in enumerate(keys)])
    assert (client.info("memory")["used_memory"] - before) / names <= 200
