"""Hand-off of batches on one core, 200-byte records, `batch=200`: the bridge against consume-and-push by hand."""

import urllib.request
from contextlib import suppress

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.stack import Stack, clock_from_first, compare
from tests.servers.process import free_port

COUNT = 400_000
CORE = 0


def main() -> None:
    """No worker runs, Kafka and Redis may use every core."""
    contestants = {
        "by hand": _by_hand,
        "bridge": lambda on, number: _bridge(on, f"handoff-{number}", "handoff"),
        "bridge, completion": lambda on, number: _bridge(on, f"completion-{number}", "completion"),
    }
    compare("handoff_batches", "batch", COUNT, contestants, {"bridge": 0.6})


def _by_hand(on: Stack, _: int) -> float:
    client = on.redis
    client.flushall()
    with on.process("benchmarks.by_hand", "batch", core=CORE):
        return COUNT / clock_from_first(lambda: int(client.get("pushed") or 0), COUNT)


def _bridge(on: Stack, group: str, commit: str) -> float:
    on.redis.flushall()
    port = str(free_port())
    with on.process("bridge", core=CORE, BRIDGE_GROUP=group, COMMIT=commit, BRIDGE_HTTP_PORT=port):
        return COUNT / clock_from_first(lambda: _handed_off(port), COUNT)


def _handed_off(port: str) -> int:
    """As the bridge's own metrics have it."""
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return int(
            sum(
                sample.value
                for family in families
                for sample in family.samples
                if sample.name == "bridge_deliveries_handed_off_total"
            )
        )
    return 0
