"""The page on Sentry as it stands: a dead letter is one event, a retry none, and no payload leaves."""

import gzip
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.doc_blocks import ROOT, read_blocks
from tests.processes import Stack, eventually

SECRET = "4111 1111 1111 1111"


@contextmanager
def receiving() -> Iterator[tuple[str, list[bytes]]]:
    """Receive envelopes as Sentry does: its DSN, and what came."""
    came: list[bytes] = []

    class Requests(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://key@127.0.0.1:{server.server_address[1]}/1", came
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def events_in(envelopes: list[bytes]) -> list[dict[str, Any]]:
    """The events of envelopes: lines of JSON, the header of an item before it."""
    lines = [json.loads(line) for envelope in envelopes for line in envelope.splitlines() if line.startswith(b"{")]
    return [line for before, line in itertools.pairwise(lines) if before.get("type") == "event"]


def test_each_dead_letter_is_one_event_with_its_group_its_delivery_and_its_version(stack: Stack):
    page = ROOT / "docs" / "how-to" / "sentry.md"
    (block,) = [block for block in read_blocks(page) if block.language == "python"]
    (stack.folder / "monitoring.py").write_text(block.text)
    stack.make_topics("orders")
    with receiving() as (dsn, envelopes):
        stack.environ |= {
            "HANDLERS": "monitoring,tests.handlers.simple",
            "PYTHONPATH": str(stack.folder),
            "SENTRY_DSN": dsn,
            "KAFKA_HANDLERS_VERSION": "orders@1.4",
        }
        worker = stack.worker("-c", "1", wait=False)
        stack.bridge()
        failing, dying = stack.produce("orders", {"fail": True, "card": SECRET}, {"dead": "no card", "card": SECRET})
        stack.dead("orders", 2)
        events = eventually(lambda: found if len(found := events_in(envelopes)) >= 2 else None, 20, "two events")
        assert worker.terminate(20) == 0
        assert len(events_in(envelopes)) == 2, "the retries are none"
    name = "tests.handlers.simple.work"
    assert {event["tags"]["delivery"] for event in events} == {f"{failing}:{name}", f"{dying}:{name}"}
    assert sorted(event["fingerprint"] for event in events) == [
        [name, "ConnectionError", "tests/handlers/simple.py:work"],
        [name, "tasks.errors.DeadLetter", "tests/handlers/simple.py:work"],
    ]
    assert {event["release"] for event in events} == {"orders@1.4"}
    assert {event["tags"]["reason"] for event in events} == {"exhausted", "permanent"}
    assert SECRET.encode() not in b"".join(envelopes)
