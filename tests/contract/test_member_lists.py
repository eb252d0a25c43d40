"""What another program writes where bridges and workers are listed: it is left out, or said, and hides nobody else."""

from contextlib import closing

import pytest

from bridge.errors import LedgerUnavailable
from bridge.formats.text_forms import format_time
from bridge.inspection.status_report import make_status_data
from bridge.inspection.status_sources import StatusSources, _read_members, _unconfirmed
from bridge.jobs.group_facts import GroupFacts
from bridge.ledger import Ledger
from bridge.ledger.account_progress import Accounts
from bridge.ledger.group_members import GroupMembers, find_living_sources, note_first_observation
from bridge.ledger.ledger_layout import Account, ledger_key
from bridge.ledger.log_history import LogHistory
from tests.processes import eventually
from tests.servers.redis import RedisServer

#: No text, none of ours, half of ours, a number that is none.
JUNK = (b"\xff\xfe", b"junk", b"ledger:a:b", b"ledger:h:orders:id:many", b"", b"1e999")


@pytest.fixture
def ledger(redis_url):
    with closing(Ledger(redis_url, "", "bridge")) as made:
        yield made


def write(ledger, command, where):
    with ledger.asking("write what is none of ours") as pipe:
        for each in JUNK:
            pipe.execute_command(command, where, *([each, each] if command == "HSET" else [each]))
        pipe.execute()


def test_names_of_others_among_workers_are_left_out(ledger):
    workers = GroupMembers(ledger, "workers")
    workers.announce("here", {"queues": []}, ["a queue"])
    write(ledger, "SADD", ledger_key("members", "workers", "all"))
    write(ledger, "HSET", ledger_key("members", "workers", "seen"))
    assert list(workers.living()) == ["here"]
    assert list(workers.last_seen()) == ["a queue"]


def test_names_of_others_among_the_handlers_are_left_out(ledger):
    mine = Account("orders.handlers.charge", "orders", "id", 0)
    Accounts(ledger).join(mine, 5)
    write(ledger, "HSET", ledger_key("", "bridge", "joined"))
    assert Accounts(ledger).list_accounts() == [mine]


def test_where_another_has_written_over_where_a_handler_begins_it_is_said_and_not_taken_for_unknown(ledger):
    mine = Account("orders.handlers.charge", "orders", "id", 0)
    with ledger.asking("write over it") as pipe:
        pipe.hset(ledger_key("", "bridge", "joined"), ledger_key(*mine), b"\xffjunk")
        pipe.execute()
    with pytest.raises(LedgerUnavailable, match=r"could not read where handlers begin.*something else wrote"):
        Accounts(ledger).read_progress([mine])


def test_where_another_has_written_over_whose_data_it_is_it_is_said(ledger):
    with ledger.asking("write over it") as pipe:
        pipe.set(ledger_key("epoch"), b"\xffjunk")
        pipe.execute()
    with pytest.raises(LedgerUnavailable, match="something else wrote over it"):
        ledger.state()


@pytest.mark.parametrize("junk", [b"\xff", b"1", b"[1,null]", b"{}", b'{"at": 1}', b"[" * 20_000])
def test_where_another_has_written_over_which_log_a_partition_has_it_is_said(ledger, junk):
    with ledger.asking("write over it") as pipe:
        pipe.hset(ledger_key("", "bridge", "logs"), ledger_key("orders", 0), junk)
        pipe.execute()
    for ask in (lambda: LogHistory(ledger).read_logs([("orders", 0)]), LogHistory(ledger).everything):
        with pytest.raises(LedgerUnavailable, match="something else wrote over it"):
            ask()


def test_a_redis_that_refuses_writes_says_who_lives_and_calls_nobody_dead(own_redis: RedisServer):
    with closing(Ledger(own_redis.url, "", "bridge")) as ledger, own_redis.client() as client:
        workers = GroupMembers(ledger, "workers")
        GroupMembers(ledger, "bridges").announce("gone", {}, ["group bridge"], 0.001)
        workers.announce("gone", {"queues": []}, seconds=0.001)
        workers.announce("here", {"queues": []}, seconds=60)
        # Without a snapshot on disk Redis refuses all writes (MISCONF).
        (own_redis.folder / "dump.rdb").mkdir()
        client.config_set("save", "3600 1")
        client.bgsave()
        eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", 20)
        facts, _, mute = _read_members(GroupFacts(10.0, "bridge"), ledger)
        assert "MISCONF" in mute
        assert (facts.bridges, list(facts.workers or ())) == (None, ["here"])
        (last_seen,) = GroupMembers(ledger, "bridges").last_seen().values()
        assert facts.unconfirmed == {"bridges": {"gone": last_seen}, "workers": {"gone": None}}
        shown = make_status_data(StatusSources(facts), [])
        assert shown["unconfirmed"]["bridges"] == {"gone": {"last_seen": format_time(last_seen)}}
        assert "not confirmed: bridge gone, worker gone (the last announced itself" in _unconfirmed(facts)
        assert any(memory.disk for memory in facts.memory)
        with pytest.raises(LedgerUnavailable, match="takes no announcements"):
            find_living_sources(ledger)


def test_what_was_seen_first_by_a_bridge_that_is_gone_was_seen_then(ledger):
    assert (
        note_first_observation(ledger, "transactions", {"orders-0-4": 100.0, "orders-1-9": 200.0})["orders-0-4"]
        == 100.0
    )
    again = note_first_observation(ledger, "transactions", {"orders-0-4": 300.0, "orders-1-7": 300.0})
    assert again == {"orders-0-4": 100.0, "orders-1-7": 300.0}
    write(ledger, "HSET", ledger_key("", "bridge", "first seen transactions"))
    assert note_first_observation(ledger, "transactions", {"junk": 300.0}) == {"junk": 300.0}
    assert note_first_observation(ledger, "transactions", {}) == {}


def test_the_sources_of_every_living_member_of_the_group_are_known(ledger):
    GroupMembers(ledger, "bridges").announce("b", {"routes": {"mails": ["mail.send"]}})
    Accounts(ledger).join(Account("parcels.ship", "parcels", "id", 0), 0)
    Accounts(ledger).join(Account("gone.handler", "gone", "id", 0), 0)
    for group in ("bridge", "shop"):
        state = {"queues": [], "group": group, "handlers": ["parcels.ship"] if group == "bridge" else ["gone.handler"]}
        GroupMembers(ledger, "workers").announce(group, state)
    assert find_living_sources(ledger) == {"mails", "parcels"}
