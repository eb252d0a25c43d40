"""What only observes never decides."""

import shutil

import pytest

from tests.delivery_checks import all_settled, choose
from tests.processes import Stack, eventually


@pytest.mark.slow
def test_a_folder_of_metrics_that_is_gone_costs_the_counts_and_no_delivery(stack: Stack):
    folder = stack.folder / "metrics"
    folder.mkdir()
    choose(stack, {"orders": {"commit": "completion"}}, kafka_stuck_after=60)
    stack.environ["HANDLERS"] = "tests.handlers.simple"
    stack.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    stack.make_topics("orders")
    worker = stack.worker("-c", "1")
    shutil.rmtree(folder)
    stack.bridge()
    placed = stack.produce("orders", 1, {"fail": True}, {"dead": "no"}, 4)
    all_settled(stack, "orders", done=2, dead=2)
    assert sorted(stack.done()) == [placed[0], placed[3]]
    assert len(stack.runs()) == 2 + 2 + 3 + 1
    worker.says("metrics are not counted, deliveries go on")
    # The folder is made again, and they are counted again.
    eventually(lambda: worker.metric("worker_handled_total", group=stack.environ["BRIDGE_GROUP"]) > 0, 5)
