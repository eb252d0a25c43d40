"""Hand-off of batches on one core, 200-byte records, `batch=200`: the bridge against consume-and-push by hand."""

import urllib.request
from contextlib import suppress

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.stack import PARTITIONS, Stack, clock_from_first, report, stack
from tests.servers.process import free_port

ROUNDS = 3
COUNT = 400_000
CORE = 0


def main() -> None:
    """Interleaved rounds; no worker runs, Kafka and Redis may use every core."""
    rates: dict[str, list[float]] = {"by hand": [], "bridge": [], "bridge, completion": []}
    with stack() as on:
        on.kafka.create_topics("batch", partitions=PARTITIONS)
        on.fill("batch", COUNT)
        for number in range(ROUNDS):
            rates["by hand"].append(_by_hand(on))
            rates["bridge"].append(_bridge(on, f"handoff-{number}", "handoff"))
            rates["bridge, completion"].append(_bridge(on, f"completion-{number}", "completion"))
    report("handoff_batches", rates, "by hand", {"bridge": 0.6})


def _by_hand(on: Stack) -> float:
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
