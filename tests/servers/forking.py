"""Processes of the project that begin where its libraries are imported already: that is most of a start.

This file is run as a program by `Forks` (tests/servers/forks.py). It imports, and then forks off a process for each
line that it is given, which runs a module as `python -m` does.
"""

import gc
import json
import os
import runpy
import signal
import sys
import time
import warnings
from contextlib import suppress
from io import FileIO, TextIOWrapper
from select import select
from typing import Any, Final, TextIO

#: What bridges, workers and commands import, as far as importing it looks at nothing that a test chooses. Not `tasks`:
#: it makes an app of the environment.
IMPORTED: Final = (
    *("celery.apps.worker", "celery.bin.celery", "celery.concurrency.prefork", "celery.fixups"),
    *("celery.worker.components", "celery.worker.control", "celery.worker.strategy", "billiard.pool"),
    *("celery.app.amqp", "celery.app.control", "celery.app.events", "celery.app.log", "celery.backends.redis"),
    *("kombu.transport.redis", "lossless.transport", "lossless.worker.consumer", "lossless.worker.process_pool"),
    *(
        "bridge.inspection.setup_check",
        "bridge.inspection.record_search",
        "bridge.bridge_process",
        "bridge.jobs.group_facts",
        "pydantic.type_adapter",
    ),
    *("rich.live", "rich.markdown", "rich.progress", "rich.table", "sqlalchemy.dialects.sqlite", "typer.main"),
    *(
        "bridge.deadletters.dead_letter_service",
        "bridge.deadletters.recorder.recorder_process",
        "alembic.command",
        "psycopg",
    ),
)


def main() -> None:
    """Fork off what is asked for, until nobody asks any more; go on as each that was."""
    # In the place of this file's folder, in which `redis` is another thing; as with `python -m`.
    sys.path[0] = os.getcwd()
    for module in IMPORTED:
        with suppress(ModuleNotFoundError):
            __import__(module)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be missing in what is forked off"
    gc.freeze()
    if asked := _asked():
        _become(**asked)
        module = asked["module"]
        # As the last thing that it does, so that it ends as any Python does.
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _asked() -> dict[str, Any] | None:
    """In each process that is forked off: what it shall be. In this one None, at the end."""
    woken, waking = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    told = b""
    while True:
        ready, _, _ = select([0, woken], [], [])
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 65536)
            _tell_ended()
        if 0 not in ready:
            continue
        if not (more := os.read(0, 65536)):
            return None
        *whole, told = (told + more).split(b"\n")
        for line in whole:
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, before)
                os.close(woken)
                os.close(waking)
                asked: dict[str, Any] = json.loads(line)
                return asked
            _tell(pid=pid)


def _tell_ended() -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _tell(ended=ended[0], code=os.waitstatus_to_exitcode(ended[1]))


def _tell(**said: int) -> None:
    os.write(1, json.dumps(said).encode() + b"\n")


def _become(module: str, arguments: list[str], environ: dict[str, str], cwd: str, log: str) -> None:
    """A process with a session, a log, surroundings and an import path of its own."""
    os.setsid()
    for number, file in ((0, os.devnull), (1, log), (2, log)):
        opened = os.open(file, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = _unbuffered(number, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    if environ.get("PYTHONWARNINGS") == "ignore":
        warnings.simplefilter("ignore")
    sys.path[0] = cwd
    sys.argv = [module, *arguments]


def _unbuffered(number: int, like: TextIO) -> TextIO:
    # The raw file, as with PYTHONUNBUFFERED.
    raw: Any = FileIO(number, "wb", closefd=False)
    return TextIOWrapper(raw, encoding=like.encoding, errors=like.errors, write_through=True)


if __name__ == "__main__":
    main()
