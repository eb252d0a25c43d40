"""Hand-off of batches on one core, 200-byte records, `batch=200`: the bridge against consume-and-push by hand."""

import urllib.request
from contextlib import suppress

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.rates import Way, clock_from_first, compare
from benchmarks.stack import Stack
from benchmarks.ways import group
from tests.servers.process import free_port

COUNT = 400_000
CORE = 0


def main() -> None:
    """No worker runs, Kafka and Redis may use every core."""
    ways = {
        "by hand": Way(_by_hand),
        "bridge": Way(_bridge, 0.6),
        'bridge, commit="completion"': Way(lambda on: _bridge(on, COMMIT="completion")),
    }
    compare("handoff_batches", ways, batch=COUNT)


def _by_hand(on: Stack) -> float:
    client = on.redis
    with on.process("benchmarks.by_hand", "batch", core=CORE):
        return COUNT / clock_from_first(lambda: int(client.get("pushed") or 0), COUNT)


def _bridge(on: Stack, **environment: str) -> float:
    port = str(free_port())
    environ = {"BRIDGE_GROUP": group(), "TOPIC": "batch", "FILL": "yes", "BRIDGE_HTTP_PORT": port, **environment}
    with on.process("bridge", core=CORE, **environ):
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
