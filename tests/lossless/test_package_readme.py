"""The README of the distribution: its app starts as it stands, and what the worker gives up comes to its task."""

import re
import sys
from importlib.metadata import distribution
from pathlib import Path

from tests.lossless.harness import Broker, entry
from tests.project_process import ROOT, Process


def _readme() -> str:
    file = ROOT / "lossless" / "README.md"
    return file.read_text() if file.exists() else str(distribution("celery-lossless").read_text("METADATA"))


def test_the_app_of_the_readme_runs_a_task_and_is_given_what_no_task_can_be_run_with(broker: Broker, tmp_path: Path):
    app, command = re.findall(r"```(?:python|sh)\n(celery.*?|from.*?)```", _readme(), re.DOTALL)
    (tmp_path / "shop.py").write_text(app)
    environ = {"CELERY_BROKER_URL": broker.url, "PYTHONPATH": f"{ROOT}:{tmp_path}", "PYTHONUNBUFFERED": "1"}
    worker = Process("worker", [sys.executable, "-m", *command.split(), "-c", "1"], environ, tmp_path, tmp_path)
    try:
        broker.push(entry("shop.charge", "1", [["an order"], {}, {}]))
        broker.push(b"no message")
        worker.says("charged an order")
        worker.says("gave up None: undecodable")
    finally:
        worker.kill()
