"""A real Apicurio: handlers decode what its schemas wrote, people edit it, and its end is a retry."""

import datetime
import json
import urllib.request
from decimal import Decimal
from typing import Any

import pytest

from bridge.deadletters.model.payload_codec import PayloadCodec
from bridge.formats import schema_registry
from bridge.formats.schema_registry import RegistryOptions, SchemaRegistry
from tasks import Registry
from tasks.declaration import message_codec
from tasks.declaration.message_codec import EncodedValue
from tasks.declaration.value_codec import guard_decoder, make_decode_steps
from tasks.errors import RetryLater, Undecodable
from tests.schema_registry import ORDER_SCHEMA, frame, write_avro
from tests.servers import apicurio
from tests.servers.apicurio import ApicurioServer
from tests.servers.missing import want

PLACED = datetime.datetime(2026, 11, 26, 12, 30, tzinfo=datetime.UTC)
ORDER = {"id": 7, "amount": Decimal("12.50"), "placed": PLACED, "customer": None}
JSON_ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"id": {"type": "integer"}},
}
PROTO = 'syntax = "proto3";\n{package}message Sale {{ int64 id = 1; }}\n'


def register(server: ApicurioServer, subject: str, kind: str, schema: str) -> int:
    body = json.dumps({"schemaType": kind, "schema": schema}).encode()
    headers = {"content-type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(f"{server.url}/subjects/{subject}/versions", body, headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return int(json.load(answer)["id"])


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(400)
def test_apicurios_schemas_are_read_for_handlers_and_for_people_and_its_end_is_a_retry(monkeypatch):
    want(apicurio.missing())
    monkeypatch.setattr(schema_registry, "ANSWER_WITHIN", 60.0)
    decode = guard_decoder(make_decode_steps(Registry()))
    with ApicurioServer() as server:
        monkeypatch.setenv("SCHEMA_REGISTRY_URL", server.url)
        message_codec.find_registry.cache_clear()
        registry = SchemaRegistry(RegistryOptions(server.url))
        payloads = PayloadCodec(registry)
        assert registry.check() == "AVRO, JSON, PROTOBUF"
        number = register(server, "orders-value", "AVRO", json.dumps(ORDER_SCHEMA))
        of_json = register(server, "json-value", "JSON", json.dumps(JSON_ORDER))
        sale = register(server, "sales-value", "PROTOBUF", PROTO.format(package=""))
        packed = register(server, "packed-value", "PROTOBUF", PROTO.format(package="package shop;\n"))
        values: dict[bytes, Any] = {
            frame(number, write_avro(ORDER_SCHEMA, ORDER)): ORDER,
            frame(of_json, b'{"id":7}'): {"id": 7},
        }
        for value, wanted in values.items():
            assert decode(EncodedValue(value)) == wanted
            shown = payloads.read(value, ())
            assert b'"id":7' in (shown.value or b"")
            assert shown.is_decoded
            assert payloads.write((shown.value or b"").replace(b":7", b":8"), value, ()) != value
        with pytest.raises(RetryLater, match="has no schema 4711: it is asked for again"):
            decode(EncodedValue(frame(4711, b"x")))
        # If this begins to pass, docs/reference/compatibility.md says too little.
        for protobuf in (sale, packed):
            with pytest.raises(Undecodable, match="makes no descriptor of its schema"):
                decode(EncodedValue(frame(protobuf, b"\0\x08\x07")))
        server.kill()
        assert [decode(EncodedValue(value)) for value in values] == [*values.values()]
        with pytest.raises(RetryLater, match="is unavailable"):
            decode(EncodedValue(frame(4712, b"x")))
    payloads.close()
    message_codec.find_registry().close()
    message_codec.find_registry.cache_clear()
