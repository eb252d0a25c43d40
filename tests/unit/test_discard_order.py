"""What `bridge discard` says of an ordered topic, before it does anything."""

from bridge.commands.discard import order_risk


def test_discarding_on_an_ordered_topic_tells_that_the_next_begins_beside_what_runs() -> None:
    assert order_risk("orders", None) is None
    by_key = order_risk("orders", "key") or ""
    assert "the next of the key begins beside it. Halt the topic first (bridge halt orders" in by_key
    assert "the next of the partition begins" in (order_risk("orders", "partition") or "")
