"""The bridge's memory after 2 million records against after 100 thousand."""

import threading
import time
from pathlib import Path

from benchmarks.stack import stack

FEW, MANY = 100_000, 2_000_000
WANTED = 1.2
#: The default queue is called like it.
GROUP = "memory"


def main() -> None:
    """The queue is emptied as it fills: what is measured is the bridge."""
    with stack(one=MANY) as on:
        taken = 0
        stop = threading.Event()

        def drain() -> None:
            nonlocal taken
            client = on.redis
            while not stop.wait(0.2):
                with client.pipeline(transaction=True) as pipe:
                    pipe.llen(GROUP).delete(GROUP)
                    taken += pipe.execute()[0]

        threading.Thread(target=drain, daemon=True).start()
        with on.process("bridge", BRIDGE_GROUP=GROUP, TOPIC="one", FILL="yes") as bridge:
            few = many = 0
            while taken < MANY:
                time.sleep(0.2)
                if taken >= FEW and not few:
                    few = _resident(bridge.pid)
                    print(f"memory: {few / 1024:,.0f} MiB after {taken:,} records", flush=True)
            many = _resident(bridge.pid)
        stop.set()
    print(f"memory: {many / 1024:,.0f} MiB after {taken:,}: {many / few:.2f} x, wanted at most {WANTED} x", flush=True)


def _resident(pid: int) -> int:
    """KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])
