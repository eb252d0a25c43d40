"""A disk that is full kills no process of a worker: neither the folder of its counts nor that of its notes."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tasks.worker import worker_metrics
from tasks.worker.metrics_file import AllocatedDict
from tests.processes import ROOT, Served, Stack, eventually
from tests.servers.process import free_port

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a tmpfs")]

COUNTING = """
import os, sys
from pathlib import Path
from tasks.worker import worker_metrics as metrics
from tasks.execution import batch_progress as progress

folder = Path(sys.argv[1])
os.environ["PROMETHEUS_MULTIPROC_DIR"] = os.environ[progress.FOLDER] = str(folder)
metrics.collect_in_files()
metrics.expect_handlers(["charge"], "bridge")
(folder / "filled").touch()
try:
    (folder / "filled").write_bytes(bytes(10_000_000))
except OSError:
    pass
for number in range(2_000):
    metrics.count_runs(f"a handler with a name that is rather long, number {number}", "bridge", "done", 0.01)
notes = progress.begin_notes("one")
for offset in range(5_000):
    notes.running(offset)
    notes.done(offset)
print(sorted(path.name.partition("_")[0] for path in folder.glob("*.full")))
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 400 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> None:
    """Write until nothing more can be written."""
    with (folder / "filled").open("ab", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4_096)):
            pass


def test_a_process_counts_and_notes_on_without_its_files(small_disk: Path):
    done = subprocess.run([sys.executable, "-c", COUNTING, small_disk], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode == -signal.SIGBUS, done.stderr[-2_000:])
    assert done.stdout.strip() == "['counts', 'notes']"
    assert "No space left" in done.stderr


@pytest.mark.parametrize("room", [0, 80_000])
def test_what_ended_processes_counted_is_added_up_once_the_disk_has_room(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, room: int
):
    """With room for the beginning of the sum alone, its rest was in memory and the counts were removed."""
    monkeypatch.setattr(worker_metrics, "_folder", (os.getpid(), str(small_disk)))
    expected = {f"a key that is rather long, so that many fill a file, number {number}": 2.0 for number in range(900)}
    for process in (99_999_998, 99_999_999):
        counts = AllocatedDict(str(small_disk / f"counter_{process}.db"))
        for key in expected:
            counts.write_value(key, 1.0, 0.0)
        counts.close()
    fill(small_disk)
    with (small_disk / "filled").open("ab") as file:
        file.truncate(file.tell() - room)

    def counted() -> Counter[str]:
        found = Counter[str]()
        for path in small_disk.glob("counter_*.db"):
            found.update({key: value for key, value, *_ in AllocatedDict.read_all_values_from_file(str(path))})
        return found

    worker_metrics.fold_ended()
    assert counted() == expected
    (small_disk / "filled").unlink()
    for _ in range(2):
        worker_metrics.fold_ended()
        assert counted() == expected
        assert [path.name for path in small_disk.iterdir()] == ["counter_0.db"]


def test_good_deliveries_run_once_while_the_disk_is_full_and_metrics_say_so(innocents: Stack, small_disk: Path):
    port = free_port()
    celery = f"{sys.executable} -m celery -A tasks worker -c 2 -l INFO --without-mingle"
    script = f"mount -t tmpfs -o size=400k tmpfs /dev/shm && exec {celery}"
    environ: dict[str, Any] = {"TMPDIR": str(small_disk), "WORKER_METRICS_PORT": str(port)}
    worker: Served = innocents.start("worker", "unshare", "--mount", "sh", "-c", script, kind=Served, **environ)
    worker.port = port
    worker.says(" ready.")
    fill(small_disk)
    fill(Path(f"/proc/{worker.pid}/root/dev/shm"))
    innocents.bridge()
    produced = innocents.produce("orders", *({"seconds": 0} for _ in range(60)))
    eventually(lambda: len(innocents.done()) >= 3 * len(produced), 40)
    begun = Counter((run.handler, run.coordinates) for run in innocents.runs() if run.outcome == "begun")
    assert set(begun.values()) == {1}
    assert not innocents.dead_letters("orders")
    assert worker.exit_code is None
    eventually(lambda: worker.metric("worker_unseen_processes", what="counts") > 0, 10)
    assert worker.metric("worker_unseen_processes", what="notes") > 0
