"""A real Prometheus tells of the incidents of a real stack by the rules of `deploy/alerts.yml`, and tells an autoscaler
of its backlog by the queries of `deploy/kubernetes/autoscaling.yaml`.
"""

import json
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml

from tests.processes import ROOT, Served, Stack, eventually
from tests.servers.missing import need
from tests.servers.process import ServerProcess, free_port

pytestmark = pytest.mark.slow
#: No recorder runs here.
ALWAYS: Final = {"NobodyRecordsDeadLetters"}


class Prometheus:
    """A Prometheus with our rules, whose `for` lasts a second here, and a scrape each second."""

    def __init__(self, folder: Path, *processes: Served) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        rules = re.sub(r"(?m)^( +for:) .*$", r"\1 1s", (ROOT / "deploy" / "alerts.yml").read_text())
        (folder / "alerts.yml").write_text(rules)
        targets = [{"targets": [f"127.0.0.1:{process.port}"]} for process in processes]
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [{"job_name": "bridge", "static_configs": targets}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(settings))
        options = ("--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={self.address}")
        self.server = ServerProcess(["prometheus", *options], folder, self._answers, 30)

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        with urlopen(f"http://{self.address}/api/v1/alerts", timeout=5) as answer:
            alerts: list[dict[str, Any]] = json.load(answer)["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def ask(self, query: str) -> float:
        """The value of a query; 0 where it has none."""
        with urlopen(f"http://{self.address}/api/v1/query?query={quote(query)}", timeout=5) as answer:
            found = json.load(answer)["data"]["result"]
        return float(found[0]["value"][1]) if found else 0.0

    def _answers(self) -> bool:
        try:
            return self.firing() is not None
        except OSError:
            return False


@contextmanager
def watched(folder: Path, *processes: Served) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes these."""
    need(None if shutil.which("prometheus") else "prometheus is not here (on Debian: apt install prometheus)")
    prometheus = Prometheus(folder, *processes)
    prometheus.server.start()
    try:
        yield prometheus
    finally:
        prometheus.server.stop()


@pytest.fixture
def started(stack: Stack, tmp_path: Path) -> Iterator[tuple[Stack, Served, Served, Prometheus]]:
    stack.environ["HANDLERS"] = "tests.handlers.needy"
    stack.make_topics("orders", "mails")
    worker, bridge = stack.worker(), stack.bridge()
    with watched(tmp_path, bridge, worker) as prometheus:
        yield stack, bridge, worker, prometheus


def test_each_incident_of_a_running_stack_fires_its_alerts_and_what_is_well_fires_none(started):
    stack, bridge, worker, prometheus = started

    def fires(*names: str) -> None:
        eventually(lambda: {*names} <= prometheus.firing(), 40, f"{names} fire")

    def is_well() -> None:
        eventually(lambda: prometheus.firing() == ALWAYS, 40, "nothing else fires")

    # One success, which two retries outnumber: whether the first scrape sees it as an increase is a matter of chance.
    stack.produce("orders", 1)
    eventually(lambda: len(stack.done()) == 1, 20)
    is_well()
    # A handler that dies: its attempts fail, and its delivery is dead.
    stack.produce("orders", {"broken": True})
    fires("DeliveriesDie", "AHandlerFails", "SomeOfAHandlerFails")
    # What the handler needs is down.
    down = Path(f"{stack.runs_file}.down")
    down.touch()
    stack.produce("orders", *range(8))
    fires("WhatHandlersNeedIsDown")
    down.unlink()
    # Until then deliveries wait for the dependency, and not for a worker.
    eventually(lambda: "WhatHandlersNeedIsDown" not in prometheus.firing(), 40, "the breaker is closed")
    # A person halts a topic.
    halt = stack.start("halt", sys.executable, "-m", "bridge", "halt", stack.topic("mails"), "--why", "a test")
    assert halt.ends() == 0
    fires("ATopicIsHalted")
    # No worker runs while deliveries wait, and then no bridge.
    worker.kill()
    stack.produce("orders", *range(3))
    fires("NobodyConsumesAQueue")
    bridge.kill()
    fires("NoBridgeRuns")


def test_the_autoscaler_starts_workers_for_whatever_waits_and_stops_them_when_nothing_does(
    stack: Stack, tmp_path: Path
):
    stack.environ["TEST_DELAY"] = "4"
    stack.make_topics("orders")
    bridge = stack.bridge()
    scaler = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "autoscaling.yaml").read_text())
    queries = [
        trigger["metadata"]["query"].replace('"bridge"', f'"{stack.queue}"') for trigger in scaler["spec"]["triggers"]
    ]

    def is_active() -> bool:
        return any(prometheus.ask(query) > 0 for query in queries)

    with watched(tmp_path, bridge) as prometheus:
        eventually(lambda: prometheus.ask("bridge_ready") == 1, 20)
        assert not is_active()
        # No worker ran yet, so nothing was measured.
        stack.produce("orders", 1, 2, 3)
        eventually(is_active, 20, "the first worker is started")
        worker = stack.worker()
        eventually(lambda: len(stack.done()) == 3, 20)
        eventually(lambda: not is_active(), 20, "no worker is needed")
        # A retry waits in the broker when the last worker ends; nobody but a worker makes it due.
        stack.produce("orders", {"fail": True})
        eventually(lambda: len(stack.runs()) > 6, 20, "its first attempt")
        eventually(lambda: prometheus.ask(queries[-1]) > 0, 20, "the retry waits")
        assert worker.terminate() == 0
        due = time.time() + 8
        eventually(lambda: time.time() > due or not is_active(), 20)
        assert is_active(), "the retry is due, and nobody starts a worker"
        stack.worker()
        stack.dead("orders", 1)
        eventually(lambda: not is_active(), 20, "no worker is needed")
