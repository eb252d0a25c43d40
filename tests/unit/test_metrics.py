"""What the bridge's metrics show, and that alerts on them see what happens first."""

from bridge.audit import Line
from bridge.metrics import BridgeMetrics


def test_what_was_forgotten_with_the_ledger_is_unaccounted_for():
    metrics = BridgeMetrics()
    metrics.show_fates("orders", Line("charge", 0, 0, 200, 200, 0, unaccounted=3, forgotten=120))
    where = {"topic": "orders", "partition": "0", "handler": "charge"}
    assert metrics.registry.get_sample_value("bridge_unaccounted", where) == 123
