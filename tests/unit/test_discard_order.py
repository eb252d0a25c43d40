"""What `bridge discard` says of an ordered topic, before it does anything."""

from bridge.operator_actions.queue_discard import order_risk


def test_discarding_on_an_ordered_topic_that_is_not_halted_puts_its_order_at_risk() -> None:
    assert order_risk("orders", None, halted=False) is None
    assert order_risk("orders", "key", halted=True) is None
    assert "the next of the key begins beside it" in (order_risk("orders", "key", halted=False) or "")
    assert "the next of the partition begins beside it" in (order_risk("orders", "partition", halted=False) or "")
