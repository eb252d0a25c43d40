"""Another Redis answers for the ledger than before, or the same one with other data: that is noticed, and followed."""

import redis

from bridge.errors import LedgerUnavailable
from bridge.ledger.fate_rules import Fate
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import Account
from bridge.ledger.ledger_scripts import Mark
from tests.processes import eventually
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

#: So that a replica need not wait for others that may come.
AT_ONCE = {"repl_diskless_sync_delay": "0"}
CHARGE = Account("orders.charge", "orders", "topic-id", 0)


def follow(client: redis.Redis, leader: RedisServer) -> None:
    """Have a server replicate another, and wait until it has everything."""
    client.replicaof("127.0.0.1", str(leader.port))
    eventually(lambda: client.info("replication")["master_link_status"] == "up")


def written(ledger: Ledger, offset: int) -> bool:
    try:
        return bool(ledger.write([Mark(CHARGE, [offset], Fate.DONE)]))
    except LedgerUnavailable:
        return False


def test_a_ledger_behind_one_address_follows_the_master_and_doubts() -> None:
    with RedisServer(**AT_ONCE) as one, RedisServer(**AT_ONCE) as two, Proxy(one.port) as proxy, one.client() as at_one:
        ledger = Ledger(f"redis://127.0.0.1:{proxy.port}/0", "cluster", "bridge")
        assert written(ledger, 1)
        before = ledger.state()
        proxy.target = two.port
        follow(at_one, two)  # the ledger's connection to it stays open
        eventually(lambda: written(ledger, 2), 5)
        assert ledger.state().doubt(before) is not None
        ledger.close()


def test_a_redis_that_was_a_replica_meanwhile_is_doubted_although_no_connection_was_lost() -> None:
    with RedisServer(**AT_ONCE) as one, RedisServer(**AT_ONCE) as two, one.client() as at_one, two.client() as at_two:
        ledger = Ledger(one.url, "cluster", "bridge")
        assert written(ledger, 1)
        ledger.state()  # gives the data set its epoch
        follow(at_two, one)
        at_two.replicaof("NO", "ONE")
        assert written(ledger, 2)
        before = ledger.state()
        follow(at_one, two)
        at_one.replicaof("NO", "ONE")
        for offset in (3, 4, 5):  # so that the count of writes does not tell
            written(ledger, offset)
        after = ledger.state()
        assert ledger.fates(CHARGE, 2, 2) == bytes([Fate.OPEN])
        assert (after.epoch, after.run_id, after.writes > before.writes) == (before.epoch, before.run_id, True)
        assert "was a replica in between" in str(after.doubt(before))
        ledger.close()


def test_a_lost_connection_is_a_doubt() -> None:
    with RedisServer() as server, server.client() as client:
        ledger = Ledger(server.url, "cluster", "bridge")
        before = ledger.state()
        client.client_kill_filter(_type="normal", skipme=True)
        assert written(ledger, 1)
        after = ledger.state()
        assert "connection" in str(after.doubt(before))
        assert ledger.state().doubt(after) is None
        ledger.close()
