"""What traces cost: CPU a message of the bridge and the worker, without them and with 1 % of the records sampled.

The records have a `traceparent`, of which one in a hundred is sampled; or none, and the SDK samples one in a hundred.
"""

from benchmarks.costs import Measured, measure
from benchmarks.ways import MANY
from tests.servers.collector import collecting

#: Of so many records one is sampled.
SAMPLED = 100
PARTS = ("bridge", "main", "children")
RATIO = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": str(1 / SAMPLED)}


def traced(number: int) -> list[tuple[str, bytes]]:
    """The headers of a record whose producer has a trace."""
    flags = "01" if number % SAMPLED == 0 else "00"
    return [("traceparent", f"00-{number + 1:032x}-{number + 1:016x}-{flags}".encode())]


def main() -> None:
    """Print the CPU of each way, and how much more it is than without traces."""
    with collecting() as collector:
        on = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_METRICS_EXPORTER": "none", **RATIO}
        print("| a message, µs of CPU | bridge | worker's main process | worker's children | together | more |")
        print("| --- " * 6 + "|")
        for topic in ("plain", "batch"):
            for name, headers in (("with a traceparent", traced), ("without", None)):
                spans = len(collector.spans)
                off = measure(Measured(f"{topic}, {name}, off", topic, MANY, {}, headers), queued=False)
                its = measure(Measured(f"{topic}, {name}, on", topic, MANY, on, headers), queued=False)
                before = sum(off[part] for part in PARTS)
                for what, row in (("off", off), ("on", its)):
                    together = sum(row[part] for part in PARTS)
                    print(
                        f"| {topic}, records {name}, traces {what} | "
                        + " | ".join(f"{row[part] * 1e6:,.1f}" for part in PARTS)
                        + f" | {together * 1e6:,.1f} | {together / before - 1:+.1%} |",
                        flush=True,
                    )
                print(f"otel: {len(collector.spans) - spans:,} spans came", flush=True)
