"""The files in which a worker's processes count."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT

MAIN = """
import os
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from tasks.worker import worker_metrics as metrics

metrics.collect_in_files()
for _ in range(3):
    for _ in range(4):
        child = os.fork()
        if not child:
            metrics.count_runs("charge", "bridge", "done", 0.01)
            metrics.count_retry("charge", "bridge", "soft")
            os._exit(0)
        os.waitpid(child, 0)
    metrics.fold_ended()
metrics.count_runs("charge", "bridge", "done", 0.01)
metrics.fold_ended()
registry = CollectorRegistry()
MultiProcessCollector(registry)
print(generate_latest(registry).decode())
names = os.listdir(os.environ["PROMETHEUS_MULTIPROC_DIR"])
print(sorted(name.endswith(f"_{os.getpid()}.db") for name in names))
metrics.remove_metric_files()
"""


def test_children_that_have_ended_leave_their_counts_and_no_files() -> None:
    environ = {name: value for name, value in os.environ.items() if name != "PROMETHEUS_MULTIPROC_DIR"}
    done = subprocess.run([sys.executable, "-c", MAIN], capture_output=True, text=True, cwd=ROOT, env=environ)
    assert done.returncode == 0, done.stderr
    assert 'worker_handled_total{group="bridge",handler="charge",outcome="done"} 13.0' in done.stdout
    assert 'worker_retried_total{group="bridge",handler="charge",reason="soft"} 12.0' in done.stdout
    assert 'worker_handler_duration_seconds_bucket{group="bridge",handler="charge",le="0.025"} 13.0' in done.stdout
    assert 'worker_handler_duration_seconds_count{group="bridge",handler="charge"} 13.0' in done.stdout
    # Its own two, and one each for what the ended have counted.
    assert "[False, False, True, True]" in done.stdout


def test_a_folder_that_somebody_else_has_made_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.worker import worker_metrics

    theirs = tmp_path / "counter_999999999.db"
    theirs.write_bytes(b"")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    folder: Any = None
    monkeypatch.setattr(worker_metrics, "_folder", folder)
    worker_metrics.fold_ended()
    assert theirs.exists()
