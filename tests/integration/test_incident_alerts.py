"""A real Prometheus tells of the incidents of a real stack by the rules of `deploy/alerts.yml`."""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest

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

    def _answers(self) -> bool:
        try:
            return self.firing() is not None
        except OSError:
            return False


@pytest.fixture
def started(stack: Stack, tmp_path: Path) -> Iterator[tuple[Stack, Served, Served, Prometheus]]:
    need(None if shutil.which("prometheus") else "prometheus is not here (on Debian: apt install prometheus)")
    stack.environ["HANDLERS"] = "tests.handlers.needy"
    stack.make_topics("orders", "mails")
    worker, bridge = stack.worker(), stack.bridge()
    prometheus = Prometheus(tmp_path, bridge, worker)
    prometheus.server.start()
    try:
        yield stack, bridge, worker, prometheus
    finally:
        prometheus.server.stop()


def test_each_incident_of_a_running_stack_fires_its_alerts_and_what_is_well_fires_none(started):
    stack, bridge, worker, prometheus = started

    def fires(*names: str) -> None:
        eventually(lambda: {*names} <= prometheus.firing(), 40, f"{names} fire")

    def is_well() -> None:
        eventually(lambda: prometheus.firing() == ALWAYS, 40, "nothing else fires")

    stack.produce("orders", 1, 2, 3)
    eventually(lambda: len(stack.done()) == 3, 20)
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
