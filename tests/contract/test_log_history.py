"""What bridges note of logs for each other."""

from typing import Any

from bridge.ledger import KnownLog, Ledger, LogHistory

PLACE = ("orders.retry.5m", 0)


def test_of_bridges_that_see_that_a_log_is_gone_one_tells(there: tuple[Any, Ledger]):
    client, ledger = there
    bridges = [LogHistory(ledger) for _ in range(3)]
    assert [each.is_first_to_tell(PLACE, KnownLog("id")) for each in bridges] == [True, False, False]
    # The topic was made again and deleted again; and another partition of it.
    assert bridges[1].is_first_to_tell(PLACE, KnownLog("id of the next"))
    assert bridges[1].is_first_to_tell((PLACE[0], 1), KnownLog("id"))
    (name,) = client.keys("*deleted*")
    assert 0 < client.ttl(name) <= ledger.keep
