"""`make bench`, or `python -m benchmarks handoff end_to_end`: runs all benchmarks, or those named."""

import importlib
import sys

ALL = (
    "end_to_end",
    "storm",
    "events",
    "latency",
    "slow",
    "overload",
    "side_by_side",
    "bulk_rows",
    "killed",
    "costs",
    "limits",
    "otel",
    "order",
    "handoff",
    "handoff_batches",
    "memory",
    "transport",
    "waiting",
    "idle",
    "partitions",
    "recovery",
    "ledger",
    "due",
    "outage",
    "deadletters_recording",
    "deadletters_replay",
    "deadletters_asking",
    "console_pages",
    "console_open",
)

for name in sys.argv[1:] or ALL:
    if name not in ALL:
        sys.exit(f"there is no benchmark {name!r}: {', '.join(ALL)}")
    print(f"== {name}", flush=True)
    importlib.import_module(f"benchmarks.{name}").main()
