"""One trace through all processes at an OTLP receiver: from the producer to the replay and what handlers publish."""

import json
import sys

from tests.delivery_checks import choose, command
from tests.processes import Served, Stack, eventually, headers_of
from tests.servers.collector import CollectedSpan, collecting
from tests.servers.process import free_port

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
OTHER, THIRD = "a" * 32, "b" * 32
PARENT, OTHER_PARENT, THIRD_PARENT = (f"00-{trace}-{SPAN}-01".encode() for trace in (TRACE, OTHER, THIRD))


def test_one_trace_leads_from_the_producer_to_the_dead_letter_and_through_its_replay(stack: Stack):
    choose(stack, {"orders": {}}, kafka_park_after=1, kafka_retry_tiers=[1])
    with collecting() as collector:
        stack.environ |= {
            "HANDLERS": "tests.handlers.parking",
            "TEST_DELAYS": "0.2,1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        stack.make_topics("orders", "invoices")
        worker = stack.worker("-c", "1", wait=False, WORKER_LOG_FORMAT="json")
        port = free_port()
        stack.environ |= {
            "BRIDGE_HTTP_PORT": str(port),
            "DEADLETTERS_DATABASE_URL": f"sqlite:///{stack.folder}/letters.db",
        }
        bridge: Served = stack.start("bridge", sys.executable, "-m", "bridge", "run", "--record", kind=Served)
        bridge.port = port
        eventually(bridge.ready, 40, "the bridge consumes")
        (coordinates,) = stack.produce("orders", {"fail": 9}, headers=[("traceparent", PARENT)])
        (letter,) = stack.dead("orders", 1, 40)
        spans: list[CollectedSpan] = eventually(
            lambda: found if len(found := collector.of_trace(TRACE)) >= 7 else None, 20, "seven spans"
        )
        stack.produce("orders", {"dead": True}, headers=[("traceparent", OTHER_PARENT)])
        stack.dead("orders", 2, 40)
        eventually(lambda: '"id": 2' in command(stack, "deadletters", "list", "--json"), 20, "both are recorded")
        command(stack, "deadletters", "replay", "2", "--yes")
        stack.dead("orders", 3, 40)
        others: list[CollectedSpan] = eventually(
            lambda: found if len(found := collector.of_trace(OTHER)) >= 7 else None, 20, "seven spans more"
        )
        stack.produce("orders", {"publish": "invoices"}, headers=[("traceparent", THIRD_PARENT)])
        (invoice,) = eventually(lambda: stack.records("invoices"), 20, "what the handler publishes")
        assert bridge.terminate() == 0
        assert worker.terminate() == 0
        publishing = collector.of_trace(THIRD)
    by_id = {span.id: span for span in spans}
    orders, parked, dead = (stack.topic(name) for name in ("orders", "orders.retry.1s", "orders.dlq"))
    last = next(span for span in spans if span.name == f"send {dead}")
    hops = [last.name]
    while last.links:
        (link,) = last.links
        last = by_id[link]
        hops.append(last.name)
    assert hops == [
        f"send {dead}",
        *(f"process {orders}", f"send {stack.queue}", f"send {parked}"),
        *(f"process {orders}", f"process {orders}", f"send {stack.queue}"),
    ]
    assert {span.parent for span in (*spans, *others)} == {SPAN}
    sent = next(span for span in others if span.name == f"send {stack.topic('orders.replay')}")
    assert [span.name for span in others if span.id in sent.links] == [f"send {dead}"]
    assert sum(span.failed for span in spans) == 3
    assert letter.theirs == [("traceparent", PARENT)], "the producer's own context stays"
    assert letter.ours["delivery_trace"].split("-")[1] == TRACE
    (run,) = (span for span in publishing if span.name == f"process {orders}")
    assert dict(headers_of(invoice))["traceparent"] == f"00-{THIRD}-{run.id}-01".encode()
    assert collector.services == {stack.queue}
    counted = collector.metrics["worker_dead_lettered_total"].sum.data_points
    assert sum(point.as_double for point in counted) == 3, "the last counts are exported at the end"
    assert collector.metrics["bridge_deliveries_handed_off_total"].sum.is_monotonic
    dead_line = next(line for line in worker.text.splitlines() if "is dead" in line and line.startswith("{"))
    assert json.loads(dead_line)["trace_id"] == TRACE
    assert json.loads(dead_line)["delivery"].startswith(coordinates)
