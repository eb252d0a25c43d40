"""What a bridge tells of deliveries that none of its handlers has."""

from bridge.ledger import Account
from bridge.upkeep.announcement import beside


def test_handlers_that_were_renamed_are_looked_at_where_the_log_is_the_same():
    here = [Account("new", "orders", "id", 0), Account("other", "orders", "id", 0)]
    old = Account("old", "orders", "id", 0)
    elsewhere = [Account("old", "orders", "before", 0), Account("old", "orders", "id", 1), Account("x", "p", "id", 0)]
    assert beside(here, [*here, old, *elsewhere]) == [old]
