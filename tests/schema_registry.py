"""A schema registry for tests: the API that Confluent's client asks, on a port of this machine."""

import base64
import json
import re
import struct
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from typing import Any

import fastavro

ORDER_SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "customer",
            "type": ["null", {"type": "record", "name": "Customer", "fields": [{"name": "email", "type": "string"}]}],
        },
    ],
}


@dataclass
class RegistryServer:
    """The schemas of a registry, and how it answers.

    Attributes:
        schemas: by id, as the API gives them.
        status: in place of every answer, if it is not 0.
        login: the header `authorization` that it wants.
        asked: the paths of all requests.
        body: in place of the body of every schema, if it is not `None`.
        pause: seconds between two bytes of a body.
    """

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[tuple[str, int], int] = field(default_factory=dict)
    status: int = 0
    login: str = ""
    asked: list[str] = field(default_factory=list)
    body: Any = None
    pause: float = 0.0

    def add(
        self,
        schema: Any,
        kind: str = "AVRO",
        references: Sequence[Mapping[str, Any]] = (),
        subject: str = "",
        serialized: str = "",
    ) -> int:
        """Register a schema, and return its id."""
        number = len(self.schemas) + 1
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas[number] = {"schema": text, "schemaType": kind, "references": list(references), "id": number}
        self.schemas[number] |= {"guid": str(uuid.UUID(int=number)), "serialized": serialized}
        if subject:
            self.subjects[subject, 1] = number
        return number

    def answer(self, path: str, login: str) -> tuple[int, Any]:
        """Return status and body for a request."""
        self.asked.append(path)
        if self.status:
            return self.status, {"error_code": self.status * 100, "message": "broken"}
        if self.login and login != self.login:
            return 401, {"error_code": 40101, "message": "who are you"}
        found = None
        place, _, query = path.partition("?")
        if place == "/schemas/types":
            return 200, ["AVRO", "JSON", "PROTOBUF"]
        if self.body is not None:
            return 200, self.body
        if match := re.fullmatch(r"/schemas/ids/(\d+)", place):
            found = self.schemas.get(int(match[1]))
        elif match := re.fullmatch(r"/schemas/guids/([0-9a-f-]+)", place):
            found = next((each for each in self.schemas.values() if each["guid"] == match[1]), None)
        elif match := re.fullmatch(r"/subjects/([^/]+)/versions/(\d+)", place):
            number = self.subjects.get((match[1], int(match[2])), 0)
            found = self.schemas[number] | {"subject": match[1], "version": int(match[2])} if number else None
        if found is None:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        shown = {name: value for name, value in found.items() if name != "serialized"}
        return 200, shown | ({"schema": found["serialized"]} if "format=serialized" in query else {})


@contextmanager
def serve_registry() -> Iterator[RegistryServer]:
    """Run a registry until the block ends."""
    registry = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path, self.headers.get("authorization", ""))
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            if not registry.pause:
                self.wfile.write(data)
                return
            with suppress(OSError):  # the client has left
                for byte in data:
                    self.wfile.write(bytes([byte]))
                    time.sleep(registry.pause)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def frame(schema: int, body: bytes) -> bytes:
    """Return a value with its schema's id before it."""
    return struct.pack(">bI", 0, schema) + body


def write_avro(schema: Any, value: Any) -> bytes:
    """Return a value in Avro."""
    written = BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
    return written.getvalue()


def basic(user: str, password: str) -> str:
    """Return the header of HTTP's basic authentication."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
