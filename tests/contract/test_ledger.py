"""What any ledger keeps: the one in Redis, and the one in memory that the model test runs on."""

from collections.abc import Iterator, Sequence

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.errors import LedgerUnavailable
from bridge.ledger.account_progress import AccountProgress, Accounts
from bridge.ledger.fate_rules import OVERWRITES, SETTLED, Fate, follow_fate
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import PAGE, Account, ledger_key
from bridge.ledger.ledger_scripts import Mark, Push
from tests.hypothesis_profiles import examples
from tests.memory_ledger import MemoryLedger

CHARGE = Account("orders.handlers.charge", "orders", "topic-id", 3)
NOTIFY = CHARGE._replace(handler="orders.handlers.notify")


class Kept:
    """A ledger and a look at its broker's queue; `url` of the Redis that holds both."""

    def __init__(self, ledger: Ledger | MemoryLedger, url: str = "") -> None:
        self.ledger, self._url = ledger, url

    def queued(self, queue: str) -> list[bytes]:
        if isinstance(self.ledger, MemoryLedger):
            return self.ledger.queues[queue]
        with redis.Redis.from_url(self._url) as client:
            found: list[bytes] = client.lrange(queue, 0, -1)
            return found[::-1]

    @property
    def accounts(self) -> Accounts | MemoryLedger:
        return self.ledger if isinstance(self.ledger, MemoryLedger) else Accounts(self.ledger)

    def expire(self, account: Account, page: int) -> None:
        if isinstance(self.ledger, MemoryLedger):
            self.ledger.expire(account, page)
        else:
            with redis.Redis.from_url(self._url) as client:
                client.delete(self.ledger.page_key(account, page))
                client.delete(ledger_key("cluster", "bridge", "pages", *account))  # it was due

    def clear(self) -> None:
        if isinstance(self.ledger, MemoryLedger):
            self.ledger.wipe()
        else:
            with redis.Redis.from_url(self._url) as client:
                client.flushdb()


@pytest.fixture(params=["memory", "redis"])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    if request.param == "memory":
        yield Kept(MemoryLedger())
        return
    url: str = request.getfixturevalue("redis_url")
    ledger = Ledger(url, "cluster", "bridge")
    yield Kept(ledger, url)
    ledger.close()


def test_a_handed_delivery_is_in_the_queue_and_marked(kept: Kept) -> None:
    (written,) = kept.ledger.write([Push(CHARGE, [5, 6, 7], "celery", [b"five", b"six", b"seven"])])
    assert list(written.changed) == [5, 6, 7]
    assert kept.queued("celery") == [b"five", b"six", b"seven"]
    assert kept.ledger.fates(CHARGE, 4, 8) == bytes([0, 1, 1, 1, 0])
    assert kept.ledger.fates(NOTIFY, 4, 8) == bytes(5)


def test_only_what_is_still_open_is_pushed(kept: Kept) -> None:
    kept.ledger.write([Mark(CHARGE, [6], Fate.DONE), Mark(CHARGE, [7], Fate.HANDED)])
    (written,) = kept.ledger.write([Push(CHARGE, [5, 6, 7, 8], "celery", [b"5", b"6", b"7", b"8"])])
    assert list(written.changed) == [5, 8]
    assert written.before == bytes([0, 2, 1, 0])
    assert kept.queued("celery") == [b"5", b"8"]
    assert kept.ledger.fates(CHARGE, 5, 8) == bytes([1, 2, 1, 1])


def test_an_entry_that_carries_a_batch_is_pushed_whole_or_not_at_all(kept: Kept) -> None:
    kept.ledger.write([Mark(CHARGE, [6], Fate.DONE)])
    (refused,) = kept.ledger.write([Push(CHARGE, [5, 6, 7], "celery", [b"batch"])])
    assert (list(refused.changed), list(refused.free)) == ([], [5, 7])
    assert kept.queued("celery") == []
    assert kept.ledger.fates(CHARGE, 5, 7) == bytes([0, 2, 0])
    (taken,) = kept.ledger.write([Push(CHARGE, refused.free, "celery", [b"smaller"])])
    assert list(taken.changed) == [5, 7]
    assert kept.queued("celery") == [b"smaller"]


def test_handing_off_twice_pushes_once(kept: Kept) -> None:
    for expected in ([1, 2], []):
        (written,) = kept.ledger.write([Push(CHARGE, [1, 2], "celery", [b"batch"])])
        assert list(written.changed) == expected
    assert kept.queued("celery") == [b"batch"]


@pytest.mark.parametrize("old", list(Fate))
@pytest.mark.parametrize("wanted", list(Fate))
def test_a_fate_follows_only_where_the_table_allows_it(kept: Kept, old: Fate, wanted: Fate) -> None:
    ways = {
        Fate.OPEN: [],
        Fate.HANDED: [Fate.HANDED],
        Fate.GAP: [Fate.GAP],
        **{fate: [fate] for fate in SETTLED},
    }
    for offset in range(10, 14):  # both halves of a byte, and each with its neighbour in another fate
        kept.ledger.write([Mark(CHARGE, [offset], fate) for fate in ways[old]])
    kept.ledger.write([Mark(CHARGE, [9], Fate.DONE), Mark(CHARGE, [14], Fate.PARKED)])
    (written,) = kept.ledger.write([Mark(CHARGE, [10, 13], wanted)])
    assert written.before == bytes([old, old])
    assert bool(written.changed) == (old in OVERWRITES[wanted])
    new = follow_fate(old, wanted)
    assert kept.ledger.fates(CHARGE, 9, 14) == bytes([Fate.DONE, new, old, old, new, Fate.PARKED])


def test_a_stuck_delivery_is_opened_again_but_a_finished_one_is_not(kept: Kept) -> None:
    kept.ledger.write([Push(CHARGE, [1, 2], "celery", [b"batch"]), Mark(CHARGE, [1], Fate.DONE)])
    (written,) = kept.ledger.write([Mark(CHARGE, [1, 2], Fate.OPEN)])
    assert list(written.changed) == [2]
    (again,) = kept.ledger.write([Push(CHARGE, [2], "celery", [b"again"])])
    assert list(again.changed) == [2]


def test_forgetting_is_the_way_back_from_done(kept: Kept) -> None:
    kept.ledger.write([Mark(CHARGE, range(PAGE - 5, PAGE + 5), Fate.DONE)])
    kept.ledger.forget(CHARGE, PAGE - 2, PAGE + 2)
    assert kept.ledger.fates(CHARGE, PAGE - 5, PAGE + 4) == bytes([2, 2, 2, 0, 0, 0, 0, 0, 2, 2])


def test_many_offsets_of_many_accounts_are_answered_at_once(kept: Kept) -> None:
    far = 70 * PAGE + 1
    kept.ledger.write([Mark(CHARGE, [1, far], Fate.DONE), Mark(NOTIFY, [4], Fate.DEAD)])
    answers = kept.ledger.fates_of([(CHARGE, [1, 2, far]), (NOTIFY, []), (NOTIFY, [3, 4])])
    assert answers == [bytes([2, 0, 2]), b"", bytes([0, 4])]


def test_a_search_finds_the_first_and_counts_all(kept: Kept) -> None:
    kept.ledger.write([Mark(CHARGE, range(PAGE * 3), Fate.DONE), Mark(CHARGE, [PAGE * 3 + 7], Fate.HANDED)])
    assert kept.ledger.find(CHARGE, {Fate.HANDED}, 0, PAGE * 40) == PAGE * 3 + 7
    assert kept.ledger.find(CHARGE, {Fate.OPEN, Fate.HANDED}, 0, PAGE * 40) == PAGE * 3
    assert kept.ledger.find(CHARGE, {Fate.DEAD}, 0, PAGE * 40) is None
    assert kept.ledger.find(CHARGE, {Fate.DONE}, 5, 4) is None
    count = kept.ledger.count(CHARGE, 10, PAGE * 5 - 1)
    assert count.fates[Fate.DONE] == PAGE * 3 - 10
    assert count.fates[Fate.HANDED] == 1
    assert count.fates[Fate.OPEN] == PAGE - 1
    assert count.pageless == PAGE


def test_what_is_unaccounted_for_is_open_on_a_page_that_is_there(kept: Kept) -> None:
    kept.ledger.write([Mark(CHARGE, [1, 2, 3, 6, PAGE * 2], Fate.DONE), Mark(CHARGE, [4], Fate.GAP)])
    assert list(kept.ledger.runs(CHARGE, {Fate.OPEN}, 1, PAGE * 2 - 1)) == [range(5, 6), range(7, PAGE)]
    assert list(kept.ledger.runs(CHARGE, {Fate.DONE}, 0, PAGE * 3))[-1] == range(PAGE * 2, PAGE * 2 + 1)


def test_a_handler_joins_once(kept: Kept) -> None:
    assert kept.accounts.join(CHARGE, 500) == 500
    kept.ledger.write([Mark(CHARGE, [899], Fate.DONE)])
    assert kept.accounts.join(CHARGE, 900) == 500
    assert kept.accounts.join(CHARGE, 100) == 500
    assert kept.accounts.join(NOTIFY, 900) == 900


def test_a_handler_joins_anew_where_the_page_below_is_gone(kept: Kept) -> None:
    assert kept.accounts.join(CHARGE, 500) == 500
    kept.ledger.write([Mark(CHARGE, [PAGE - 1], Fate.DONE)])
    assert kept.accounts.join(CHARGE, PAGE) == 500
    assert kept.accounts.join(CHARGE, PAGE + 1) == PAGE + 1
    assert kept.accounts.join(CHARGE, PAGE + 1) == PAGE + 1


def test_a_page_that_expired_and_is_written_again_calls_nothing_open_that_was_committed(kept: Kept) -> None:
    kept.accounts.join(CHARGE, 3)
    kept.ledger.write([Mark(CHARGE, range(3, 20), Fate.DONE)])
    kept.accounts.raise_reached({CHARGE: 20})
    kept.expire(CHARGE, 0)
    kept.ledger.write([Push(CHARGE, [22], "celery", [b"entry"])])
    assert kept.ledger.fates(CHARGE, 0, 23) == bytes([0] * 3 + [Fate.GAP] * 17 + [0, 0, Fate.HANDED, 0])
    assert list(kept.ledger.runs(CHARGE, {Fate.OPEN}, 3, 19)) == []
    kept.ledger.write([Push(CHARGE, [7], "celery", [b"again"])])
    assert kept.queued("celery") == [b"entry", b"again"]


def test_what_was_committed_is_told_as_expired_once_its_page_is_gone(kept: Kept) -> None:
    asked = [PAGE - 1, PAGE, 2 * PAGE + 2, 2 * PAGE + 3]
    kept.accounts.join(CHARGE, 0)
    kept.ledger.write([Mark(CHARGE, [PAGE - 1, PAGE], Fate.DONE)])
    assert kept.ledger.find_expired(CHARGE, asked) == set()
    kept.accounts.raise_reached({CHARGE: 2 * PAGE + 3})
    assert kept.ledger.find_expired(CHARGE, asked) == {2 * PAGE + 2}
    kept.expire(CHARGE, 0)
    assert kept.ledger.find_expired(CHARGE, asked) == {PAGE - 1, 2 * PAGE + 2}
    assert kept.ledger.find_expired(CHARGE, []) == set()
    # In a ledger that was wiped the bridge begins where it had committed.
    kept.clear()
    assert kept.ledger.find_expired(CHARGE, asked) == set()
    kept.accounts.join(CHARGE, PAGE)
    assert kept.ledger.find_expired(CHARGE, asked) == {PAGE - 1}


@pytest.mark.parametrize(("joined", "reached"), [(1, 2), (1, 3), (2, 3), (2, 4), (4, 4), (0, PAGE), (5, 3 * PAGE)])
def test_a_page_written_again_knows_from_where_on_it_knows(kept: Kept, joined: int, reached: int) -> None:
    kept.accounts.join(CHARGE, joined)
    kept.accounts.raise_reached({CHARGE: reached})
    kept.ledger.write([Mark(CHARGE, [PAGE - 1], Fate.DONE)])
    found = kept.ledger.fates(CHARGE, 0, PAGE - 1)
    known = [Fate.OPEN if not joined <= offset < reached else Fate.GAP for offset in range(PAGE - 1)]
    assert found == bytes([*known, Fate.DONE])


def test_a_page_that_is_there_and_one_of_an_account_that_never_began_are_left_as_they_are(kept: Kept) -> None:
    kept.ledger.write([Mark(CHARGE, [1], Fate.DONE), Mark(NOTIFY, [PAGE + 9], Fate.DONE)])
    kept.accounts.join(CHARGE, 0)
    kept.accounts.raise_reached({CHARGE: 5, NOTIFY: PAGE + 9})
    kept.ledger.write([Mark(CHARGE, [7], Fate.DONE), Mark(NOTIFY, [9], Fate.DONE)])
    assert kept.ledger.fates(CHARGE, 0, 7) == bytes([0, 2, 0, 0, 0, 0, 0, 2])
    assert kept.ledger.fates(NOTIFY, 0, 9) == bytes([0] * 9 + [Fate.DONE])


def test_a_ledger_that_may_have_lost_something_is_given_no_credit_for_it(kept: Kept) -> None:
    before = kept.ledger.state()
    assert kept.accounts.raise_reached({CHARGE: 9}, before).doubt(before) is None
    assert kept.accounts.raise_reached({CHARGE: 20}, before._replace(run_id="another")).doubt(before) is None
    assert kept.accounts.raise_reached({CHARGE: 20}, before._replace(writes=before.writes + 1)) == before
    assert kept.accounts.read_progress([CHARGE]) == [AccountProgress(None, 9, None)]


def test_what_is_known_of_accounts_is_told_and_who_ever_began_is_listed(kept: Kept) -> None:
    odd = Account("a:b handler", "t%pic", "id", 12)
    assert kept.accounts.read_progress([CHARGE, odd]) == [AccountProgress(), AccountProgress()]
    kept.accounts.join(CHARGE, 5)
    kept.accounts.join(odd, 0)
    kept.accounts.raise_reached({CHARGE: 9})
    kept.accounts.raise_reached({})
    kept.accounts.lose([CHARGE, odd], 7)
    assert kept.accounts.read_progress([CHARGE, odd]) == [AccountProgress(5, 9, 7), AccountProgress(0, None, 7)]
    assert kept.accounts.list_accounts() == sorted([CHARGE, odd])


def test_the_state_counts_writes_and_a_wipe_changes_the_epoch(kept: Kept) -> None:
    first = kept.ledger.state()
    kept.ledger.write([Mark(CHARGE, [1], Fate.HANDED)])
    second = kept.ledger.state()
    assert second.doubt(first) is None
    assert second.writes > first.writes
    kept.clear()
    doubt = kept.ledger.state().doubt(second)
    assert doubt is not None
    assert "wiped" in doubt


@pytest.mark.parametrize("offsets", [[2, 1], [1, 1, 3], [3, 3]])
def test_offsets_out_of_order_are_refused_before_anything_is_written(kept: Kept, offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        kept.ledger.write([Mark(CHARGE, [9], Fate.DONE), Mark(CHARGE, offsets, Fate.DONE)])
    assert kept.ledger.fates(CHARGE, 9, 9) == bytes([0])


def test_entries_that_do_not_fit_their_offsets_are_refused(kept: Kept) -> None:
    with pytest.raises(ValueError, match="entries"):
        kept.ledger.write([Push(CHARGE, [1, 2, 3], "celery", [b"a", b"b"])])
    with pytest.raises(ValueError, match="entries"):
        kept.ledger.write([Push(CHARGE, [], "celery", [b"a"])])


_WIDE = 3 * PAGE
_OFFSETS = st.one_of(
    st.lists(st.integers(0, _WIDE), unique=True, max_size=40).map(sorted),
    st.builds(lambda a, n: list(range(a, a + n)), st.integers(0, _WIDE), st.integers(0, 300)),
    st.lists(st.integers(PAGE - 30, PAGE + 30), unique=True, max_size=40).map(sorted),
)


@st.composite
def _writes(draw: st.DrawFn) -> Mark | Push:
    account, offsets = draw(st.sampled_from([CHARGE, NOTIFY])), draw(_OFFSETS)
    if not offsets or draw(st.booleans()):
        return Mark(account, offsets, draw(st.sampled_from(list(Fate))))
    entries: Sequence[bytes] = [f"{account.handler}{offset}".encode() for offset in offsets]
    return Push(account, offsets, "celery", entries if draw(st.booleans()) else [b"whole"])


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(_writes(), max_size=4), max_size=6))
def test_redis_and_memory_agree_on_any_writes(redis_url: str, calls: list[list[Mark | Push]]) -> None:
    memory, real = MemoryLedger(), Ledger(redis_url, "any", "bridge")
    Kept(real, redis_url).clear()
    for call in calls:
        expected, found = memory.write(call), real.write(call)
        assert [(w.before, list(w.changed)) for w in found] == [(w.before, list(w.changed)) for w in expected]
    for account in (CHARGE, NOTIFY):
        assert real.fates(account, 0, _WIDE + 400) == memory.fates(account, 0, _WIDE + 400)
    assert Kept(real, redis_url).queued("celery") == memory.queues["celery"]
    real.close()


def test_a_fate_that_no_version_knows_is_said_with_its_page_and_a_person_can_open_it(redis_url: str):
    ledger = Ledger(redis_url, "cluster", "bridge")
    ledger.write([Mark(CHARGE, range(8), Fate.DONE)])
    with redis.Redis.from_url(redis_url) as client:
        client.setrange(ledger.page_key(CHARGE, 0), 2, b"\x29")
    for ask in (lambda: ledger.fates(CHARGE, 3, 7), lambda: ledger.fates_of([(CHARGE, [1, 5])])):
        with pytest.raises(LedgerUnavailable) as said:
            ask()
        for word in ("orders-3-5 has a fate", CHARGE.handler, ": 9,", ledger.page_key(CHARGE, 0), "--to 5 --again"):
            assert word in str(said.value)
    assert ledger.fates_of([(CHARGE, [1, 4, 6])]) == [bytes([Fate.DONE] * 3)]
    (written,) = ledger.write([Push(CHARGE, [5], "queue", [b"entry"])])
    assert not written.free
    assert not written.changed
    ledger.forget(CHARGE, 5, 5)
    assert ledger.fates(CHARGE, 5, 5) == bytes([Fate.OPEN])
