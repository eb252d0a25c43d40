"""`codec=Registry()`: what a schema wrote reaches the handler, and a registry that is down spends no attempt."""

import base64
import datetime
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from celery import Celery
from google.protobuf import any_pb2, json_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Value
from pydantic import BaseModel

from bridge.deadletters.model.payload_codec import PayloadCodec
from bridge.errors import EditRefused, RegistryUnavailable, ValueUnfit
from bridge.formats import schema_registry
from bridge.formats.avro_schema import AvroFormat
from bridge.formats.protobuf_schema import ProtobufFormat
from bridge.formats.schema_frame import SchemaFrame, read_frame
from bridge.formats.schema_registry import RegistryOptions, SchemaRegistry
from bridge.handler_routes import Handler, Routes
from bridge.inspection import setup_check
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from bridge.settings.settings_validation import find_registry_faults
from tasks import Registry
from tasks.declaration import message_codec
from tasks.declaration.celery_defaults import OWN_DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tasks.declaration.message_codec import EncodedValue
from tasks.declaration.value_codec import check_value, guard_decoder, make_decode_steps
from tasks.errors import HandlerError, RegistryDown, RetryLater, Undecodable
from tasks.testing import outcome
from tests.processes import eventually
from tests.schema_registry import ORDER_SCHEMA, RegistryServer, basic, frame, serve_registry, write_avro

PLACED = datetime.datetime(2026, 11, 26, 12, 30, tzinfo=datetime.UTC)
ORDER = {"id": 7, "amount": Decimal("12.50"), "placed": PLACED, "customer": {"email": "ann@example.com"}}


@pytest.fixture(scope="module")
def served() -> Iterator[RegistryServer]:
    with serve_registry() as server:
        yield server


@pytest.fixture
def registry(served: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", served.url)
    served.status, served.login, served.asked, served.body, served.pause = 0, "", [], None, 0.0
    message_codec.find_registry.cache_clear()
    yield served
    message_codec.find_registry.cache_clear()


@pytest.fixture
def clock(registry: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the codec's registry."""
    now = [1_000.0]
    monkeypatch.setattr(message_codec.find_registry(), "_clock", lambda: now[0])
    return now


@pytest.fixture
def order(registry: RegistryServer) -> bytes:
    return frame(registry.add(ORDER_SCHEMA), write_avro(ORDER_SCHEMA, ORDER))


def decode(value, headers=(), annotation=None, **options):
    return guard_decoder(make_decode_steps(Registry(**options), annotation))(EncodedValue(value, headers))


def test_a_handler_gets_an_avro_value_as_a_dict(order):
    assert decode(order) == ORDER


def test_the_id_may_be_in_a_header_as_a_number_or_a_guid(registry, order):
    number = len(registry.schemas)
    guid = uuid.UUID(registry.schemas[number]["guid"])
    assert decode(order[5:], (("__value_schema_id", order[:5]),)) == ORDER
    assert decode(order[5:], (("__value_schema_id", b"\1" + guid.bytes),)) == ORDER


def test_a_model_validates_it(order):
    class Customer(BaseModel):
        email: str

    class Order(BaseModel):
        id: int
        amount: Decimal
        customer: Customer | None

    assert decode(order, annotation=Order).customer == Customer(email="ann@example.com")
    with pytest.raises(Undecodable, match=r"extra"):
        decode(order, annotation=type("Wants", (Order,), {"__annotations__": {"extra": int}}))


def test_a_schema_is_asked_for_once(registry, order):
    assert [decode(order), decode(order)] == [ORDER, ORDER]
    assert len(registry.asked) == 1


def test_a_schema_may_name_others(registry):
    customer = {
        "type": "record",
        "name": "Customer",
        "namespace": "shop",
        "fields": [{"name": "email", "type": "string"}],
    }
    registry.add(customer, subject="customers")
    named = {"name": "shop.Customer", "subject": "customers", "version": 1}
    sale = {"type": "record", "name": "Sale", "namespace": "shop", "fields": [{"name": "buyer", "type": "Customer"}]}
    number = registry.add(sale, references=[named])
    assert decode(frame(number, b"\x06a@b")) == {"buyer": {"email": "a@b"}}


def test_a_tombstone_is_none(registry):
    assert decode(None) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b'{"id": 1}', "names no schema"),
        (frame(1, b""), "end early"),
    ],
)
def test_what_names_no_known_schema_or_does_not_fit_it_is_undecodable_and_says_why(registry, value, words):
    if 1 not in registry.schemas:
        registry.add(ORDER_SCHEMA)
    with pytest.raises(Undecodable, match=words):
        decode(value)


def test_bytes_behind_the_value_do_not_fit(order):
    with pytest.raises(Undecodable, match="2 bytes are left over"):
        decode(order + b"xx")


def test_an_unknown_schema_is_put_off_for_its_first_minute_and_then_a_dead_letter_asked_for_once_a_minute(
    registry, clock
):
    value = frame(4_000_000, b"x")
    for clock[0] in (1_000.0, 1_004.0, 1_006.0, 1_059.0):
        with pytest.raises(RetryLater, match="has no schema 4000000: it is asked for again") as raised:
            decode(value)
        assert raised.value.delay == 10
    for clock[0] in (1_064.0, 1_120.0):
        with pytest.raises(Undecodable, match="has no schema 4000000"):
            decode(value)
    assert len(registry.asked) == 4


def test_an_unknown_schema_that_comes_within_its_minute_is_read(registry, clock):
    number = len(registry.schemas) + 1
    with pytest.raises(RetryLater):
        decode(frame(number, b"\x02a"))
    assert registry.add({"type": "string"}) == number
    clock[0] += 10
    assert decode(frame(number, b"\x02a")) == "a"


def test_of_more_unknown_schemas_than_are_remembered_none_is_put_off_for_ever(registry, clock, monkeypatch):
    monkeypatch.setattr(schema_registry, "MOST_UNKNOWN", 1)
    for number, becomes in ((5_000_000, RetryLater), (5_000_001, Undecodable), (5_000_000, Undecodable)):
        with pytest.raises(becomes):
            decode(frame(number, b"x"))


@pytest.mark.parametrize("status", [500, 503, 401])
def test_a_registry_that_does_not_answer_is_a_retry_that_spends_none_and_names_it(registry, status):
    registry.status = status
    with pytest.raises(RegistryDown, match=rf"^the schema registry {registry.url}") as raised:
        decode(frame(1, b"x"))
    assert raised.value.delay == 10


def test_the_login_in_an_address_is_not_shown(registry):
    registry.status = 503
    url = registry.url.replace("//", "//ann:s3cret@")
    with pytest.raises(RegistryUnavailable) as raised:
        SchemaRegistry(RegistryOptions(f"{url},{url}")).find_format(1)
    assert f"{registry.url.replace('//', '//…@')}," in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_an_address_without_the_api_is_a_retry_and_no_unknown_schema(registry, monkeypatch):
    monkeypatch.setattr(registry, "answer", lambda path, login: (404, "no such page"))
    with pytest.raises(RetryLater, match="has no such API"):
        decode(frame(1, b"x"))


@pytest.mark.parametrize("body", [{}, {"status": "maintenance"}, {"schema": None}, {"schema": " "}, {"schema": 5}, []])
def test_an_answer_without_a_schema_is_a_registry_that_is_down(registry, order, clock, body):
    registry.body = body
    with pytest.raises(RetryLater, match=rf"schema registry {registry.url} is unavailable"):
        decode(order)
    registry.body = None
    clock[0] += 6
    assert decode(order) == ORDER


def test_an_answer_without_the_schema_that_another_names_is_a_registry_that_is_down(registry):
    named = {"name": "shop.Customer", "subject": "gone", "version": 1}
    registry.subjects["gone", 1] = registry.add("")
    number = registry.add({"type": "string"}, references=[named])
    with pytest.raises(RetryLater, match="is unavailable"):
        decode(frame(number, b"\x02a"))


def test_an_answer_that_comes_byte_by_byte_is_given_up_and_its_connection_closed(registry, monkeypatch):
    monkeypatch.setattr(schema_registry, "ANSWER_WITHIN", 0.3)
    number = registry.add({"type": "string"})
    registry.pause = 0.05
    begun = time.monotonic()
    with pytest.raises(RetryLater, match=r"is unavailable: TimeoutError: it has not answered within 0\.3 s"):
        decode(frame(number, b"\x02a"))
    assert time.monotonic() - begun < 2
    eventually(lambda: "schema registry" not in [thread.name for thread in threading.enumerate()], 2)


def test_while_it_is_down_it_is_asked_every_five_seconds_and_the_waits_grow_with_the_outage(registry, order):
    now = [0.0]
    found = SchemaRegistry(RegistryOptions(registry.url), clock=lambda: now[0])
    registry.status = 503
    for now[0] in (0.0, 1.0, 4.0, 6.0, 100.0):
        with pytest.raises(RegistryUnavailable) as raised:
            found.find_format(len(registry.schemas))
    assert (len(registry.asked), raised.value.down_for) == (3, 100.0)
    registry.status, now[0] = 0, 106.0
    assert found.find_format(len(registry.schemas)).kind == "Avro"


def test_what_is_known_decodes_while_the_registry_is_down(registry, order):
    decode(order)
    registry.status = 503
    assert decode(order) == ORDER


def test_the_check_of_a_value_does_not_know_while_it_is_down(registry, order):
    way = make_decode_steps(Registry())
    registry.status = 503
    assert (check_value(way, order).ok, "schema registry" in check_value(way, order).why) == (None, True)
    message_codec.find_registry.cache_clear()
    registry.status = 0
    assert check_value(way, order).ok


def test_several_addresses_share_the_seconds_of_an_answer():
    # A recorder is held to be stuck after ten.
    assert RegistryOptions("https://a, https://b").client_settings["timeout"] == schema_registry.ANSWER_WITHIN / 2


@pytest.mark.parametrize(
    ("options", "login"),
    [({"user": "ann", "password": "p:w"}, basic("ann", "p:w")), ({"token": "t0ken"}, "Bearer t0ken")],
)
def test_it_signs_in_and_its_repr_has_no_secret(registry, options, login):
    registry.login = login
    chosen = RegistryOptions(registry.url, **options)
    assert SchemaRegistry(chosen).check() == "AVRO, JSON, PROTOBUF"
    assert "p:w" not in repr(chosen)
    assert "t0ken" not in repr(chosen)
    with pytest.raises(RegistryUnavailable, match=r"refuses these credentials \(HTTP 401\)"):
        SchemaRegistry(RegistryOptions(registry.url)).check()


def test_the_class_in_place_of_a_codec_is_refused():
    with pytest.raises(HandlerError, match=r"write codec=Registry\(\)"):
        make_decode_steps(Registry)  # type: ignore[arg-type]


def test_without_a_registry_none_of_its_libraries_is_loaded():
    program = (
        "import sys, tasks, bridge.settings; "
        "sys.exit(str([n for n in ('fastavro', 'google.protobuf', 'jsonschema', 'httpx2', "
        "'confluent_kafka.schema_registry', 'cloudevents') if n in sys.modules]))"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert ended.stderr.strip() == "[]"


def test_a_schema_that_cannot_be_read_is_named_and_put_off_for_its_first_minute(registry, clock):
    number = registry.add('{"type": "nothing"}')
    with pytest.raises(RetryLater, match=f"its schema {number} cannot be read .* it is asked for again"):
        decode(frame(number, b"x"))
    clock[0] += 61
    with pytest.raises(Undecodable, match=f"its schema {number} cannot be read"):
        decode(frame(number, b"x"))


def test_a_schema_that_can_be_read_within_its_minute_is(registry, clock):
    number = registry.add("<html>sign in</html>")
    with pytest.raises(RetryLater):
        decode(frame(number, b"\x02a"))
    registry.schemas[number]["schema"] = '"string"'
    clock[0] += 10
    assert decode(frame(number, b"\x02a")) == "a"


def test_json_says_what_the_value_has_and_writes_the_same_bytes(registry, order):
    found = SchemaRegistry(RegistryOptions(registry.url)).find_format(len(registry.schemas))
    framed = read_frame(order, ())
    assert framed is not None
    text = found.to_json(framed)
    assert json.loads(text) == {
        "id": 7,
        "amount": 12.5,
        "placed": "2026-11-26T12:30:00Z",
        "customer": {"email": "ann@example.com"},
    }
    assert "12.50" in text
    assert found.from_json(text, framed) == order


def test_a_delivery_is_put_off_while_the_registry_is_down_and_dead_where_it_has_no_such_schema(registry, order, clock):
    with Celery("shop", set_as_current=False) as app:
        app.conf.update(OWN_DEFAULTS)

        def charge(order): ...

        options = {"name": "charge", "codec": Registry(), "max_retries": 0}
        handler = declare_handler(app, ("orders",), options)(charge)
        assert outcome(handler, order).becomes == "done"
        assert outcome(handler, frame(4_000_001, b"x")).becomes == "retry"
        clock[0] += 60
        dead = outcome(handler, frame(4_000_001, b"x"))
        assert (dead.becomes, dead.reason) == ("dead", "undecodable")
        registry.status = 503
        late = outcome(handler, frame(4_000_002, b"x"))
        # It has no retries, and needs none.
        assert (late.becomes, late.delay) == ("retry", 10)


def avro(schema: Any, datum: Any) -> tuple[AvroFormat, SchemaFrame]:
    framed = read_frame(frame(1, write_avro(schema, datum)), ())
    assert framed is not None
    return AvroFormat(json.dumps(schema), {}), framed


def test_a_logical_type_of_another_type_is_ignored_as_avro_says():
    found, framed = avro({"type": "string", "logicalType": "date"}, "a")
    assert (found.decode(framed), found.to_json(framed)) == ("a", '"a"')
    assert found.from_json('"b"', framed) == frame(1, b"\2b")


def test_json_that_would_change_the_branch_of_a_union_is_refused_and_its_bytes_are_taken():
    moments = [{"type": "long", "logicalType": "timestamp-millis"}, {"type": "int", "logicalType": "date"}]
    found, framed = avro(["null", *moments], None)
    with pytest.raises(ValueUnfit, match="which branch of a union"):
        # The library writes the number of a date as a time.
        found.from_json('"2024-10-04"', framed)
    dated = replace(framed, body=b"\4" + write_avro("int", 20_000))
    with pytest.raises(ValueUnfit, match="which branch of a union"):
        found.to_json(dated)
    after = frame(1, b"\4" + write_avro("int", 20_001))
    assert PayloadCodec(Served(found)).write(after, dated.prefix + dated.body, ()) == after
    # No date has this number.
    timed = replace(framed, body=b"\2" + write_avro("long", 1_728_000_000_000))
    assert found.to_json(timed) == '"2024-10-04T00:00:00Z"'


def test_a_decimal_keeps_all_the_digits_of_its_schema():
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    digits = "123456789012345678901234567890123456.78"
    found, framed = avro(schema, Decimal(digits))
    assert found.to_json(framed) == digits
    assert found.from_json(digits, replace(framed, body=b"\2\0")) == framed.prefix + framed.body
    for longer in ("1234567890123456789012345678901234567", "1e9999999999", "1e-9999999999"):
        with pytest.raises(ValueUnfit, match="38 digits"):
            found.from_json(longer, framed)


def test_a_time_in_microseconds_is_iso_8601():
    found, framed = avro({"type": "long", "logicalType": "timestamp-micros"}, -1)
    assert found.to_json(framed) == '"1969-12-31T23:59:59.999999Z"'
    assert found.to_json(replace(framed, body=write_avro("long", 1_795_000_000_000_000))) == '"2026-11-18T11:06:40Z"'


@pytest.mark.parametrize("text", ["1" + "0" * 400, "1e400", "1e9999999999999999999"])
def test_an_edit_to_a_number_that_a_double_has_not_is_refused(text):
    found, framed = avro("double", 1.0)
    with pytest.raises(EditRefused):
        PayloadCodec(Served(found)).write(text.encode(), framed.prefix + framed.body, ())


class Served(SchemaRegistry):
    """A registry with one format."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def find_format(self, schema: int | str) -> Any:
        return self.found


def test_what_a_library_fails_at_is_shown_as_bytes_and_breaks_no_recorder():
    class Broken:
        def to_json(self, framed: SchemaFrame) -> str:
            raise TypeError("secret")

    value = frame(1, b"x")
    assert PayloadCodec(Served(Broken())).read(value, ()) == (value, "not read by schema 1: TypeError", False)


# JSON Schema


JSON_ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "customer": {"$ref": "customer.json"}},
}


def test_a_json_value_behind_an_id_is_validated_by_its_schema_and_named_schemas(registry):
    registry.add({"type": "object", "required": ["email"]}, "JSON", subject="customers")
    named = {"name": "customer.json", "subject": "customers", "version": 1}
    number = registry.add(JSON_ORDER, "JSON", references=[named])
    assert decode(frame(number, b'{"id": 1}')) == {"id": 1}
    for body, words in (
        (b'{"id": "secret"}', "id breaks the rule type: integer"),
        (b'{"id": 1, "customer": {}}', "customer breaks the rule required"),
        (b"{", "it is no JSON"),
    ):
        with pytest.raises(Undecodable, match=words) as raised:
            decode(frame(number, body))
        assert "secret" not in str(raised.value)


def test_an_edited_json_value_keeps_its_id_and_fits_its_schema(registry):
    number = registry.add({"properties": {"id": {"type": "integer"}}}, "JSON")
    found = SchemaRegistry(RegistryOptions(registry.url)).find_format(number)
    framed = read_frame(frame(number, b'{"id": 1}'), ())
    assert framed is not None
    assert found.from_json('{"id": 2}', framed) == frame(number, b'{"id": 2}')
    with pytest.raises(ValueUnfit, match="id breaks the rule type"):
        found.from_json('{"id": "x"}', framed)


def test_a_schema_elsewhere_than_in_the_registry_is_not_fetched(registry):
    number = registry.add({"$ref": f"{registry.url}/elsewhere.json"}, "JSON")
    with pytest.raises(Undecodable, match="its schema cannot be applied"):
        decode(frame(number, b"{}"))
    assert not any("elsewhere" in path for path in registry.asked)


# Protobuf


@pytest.fixture
def sale(registry: RegistryServer) -> int:
    """The id of a schema with two messages: `Unused`, and `Sale` in the package `shop`."""
    fields = {
        "id": {"number": 1, "type": "TYPE_INT64"},
        "state": {"number": 2, "type": "TYPE_ENUM", "typeName": ".shop.State"},
        "raw": {"number": 3, "type": "TYPE_BYTES"},
        "placed": {"number": 4, "type": "TYPE_MESSAGE", "typeName": ".google.protobuf.Timestamp"},
        "tags": {"number": 5, "type": "TYPE_STRING", "label": "LABEL_REPEATED"},
        "note": {"number": 6, "type": "TYPE_STRING", "proto3Optional": True, "oneofIndex": 0},
    }
    described = {
        "name": "sale.proto",
        "package": "shop",
        "syntax": "proto3",
        "dependency": ["google/protobuf/timestamp.proto"],
        "messageType": [
            {"name": "Unused"},
            {
                "name": "Sale",
                "field": [{"name": name, "label": "LABEL_OPTIONAL", **each} for name, each in fields.items()],
                "oneofDecl": [{"name": "_note"}],
            },
        ],
        "enumType": [{"name": "State", "value": [{"name": "NEW", "number": 0}, {"name": "PAID", "number": 1}]}],
    }
    found = json_format.ParseDict(described, FileDescriptorProto())
    text = base64.b64encode(found.SerializeToString()).decode()
    return registry.add('syntax = "proto3";', "PROTOBUF", serialized=text)


#: The index of `Sale` in its file, then: id 9007199254740993, PAID, two bytes, a time, a tag.
SALE = bytes.fromhex("020208818080808080801010011a02ff0022060880e8e9c8062a0161")


def test_a_protobuf_message_is_a_dict_with_the_names_of_its_schema(sale):
    assert decode(frame(sale, SALE)) == {
        "id": 2**53 + 1,
        "state": "PAID",
        "raw": b"\xff\x00",
        "placed": "2025-11-17T01:01:52Z",
        "tags": ["a"],
    }


def test_a_well_known_type_that_has_no_json_does_not_fit():
    described = {
        "name": "a.proto",
        "syntax": "proto3",
        "dependency": ["google/protobuf/any.proto"],
        "messageType": [
            {
                "name": "Event",
                "field": [{"name": "of", "number": 1, "type": "TYPE_MESSAGE", "typeName": ".google.protobuf.Any"}],
            }
        ],
    }
    descriptor = json_format.ParseDict(described, FileDescriptorProto()).SerializeToString()
    unknown = any_pb2.Any(type_url="type.googleapis.com/shop.Sale", value=b"\x08\x01").SerializeToString()
    framed = read_frame(frame(1, b"\0\x0a" + bytes([len(unknown)]) + unknown), ())
    assert framed is not None
    found = ProtobufFormat(base64.b64encode(descriptor).decode(), {})
    for read in (found.decode, found.to_json):
        with pytest.raises(ValueUnfit, match=r"its google.protobuf.Any has no JSON \(TypeError\)"):
            read(framed)


# The first as Apicurio 3.3 sends one.
@pytest.mark.parametrize("serialized", ['\n\u0004Sale"\u0012', ""])
def test_a_registry_that_makes_no_descriptor_of_a_protobuf_schema_is_said(registry, serialized):
    number = registry.add('syntax = "proto3"; message Sale {}', "PROTOBUF", serialized=serialized)
    with pytest.raises(Undecodable, match="makes no descriptor of its schema"):
        decode(frame(number, SALE))


def test_an_edited_protobuf_message_keeps_its_id_and_its_index(registry, sale):
    found = SchemaRegistry(RegistryOptions(registry.url)).find_format(sale)
    framed = read_frame(frame(sale, SALE), ())
    assert framed is not None
    text = found.to_json(framed)
    assert '"id":9007199254740993' in text
    assert found.from_json(text, framed) == frame(sale, SALE)
    assert found.from_json(text.replace("PAID", "NEW"), framed) == frame(sale, SALE.replace(b"\x10\x01\x1a", b"\x1a"))
    for no_message in (b"7", b"null"):
        with pytest.raises(EditRefused, match="is no JSON from which"):
            PayloadCodec(Served(found)).write(no_message, frame(sale, SALE), ())
    with pytest.raises(ValueUnfit, match="colour"):
        found.from_json('{"colour": 1}', framed)


def test_a_message_with_fields_that_its_schema_does_not_know_is_edited_as_bytes_alone(registry, sale):
    found = SchemaRegistry(RegistryOptions(registry.url)).find_format(sale)
    framed = read_frame(frame(sale, SALE + b"\x98\x06\x01"), ())
    assert framed is not None
    with pytest.raises(ValueUnfit, match="fields that its schema does not know"):
        found.from_json(found.to_json(framed), framed)


def test_a_handler_may_get_an_instance_of_the_generated_class_without_the_registry(registry):
    # `Value` is the second message of its file, after `Struct`.
    assert decode(frame(1, b"\x02\x02\x20\x01"), protobuf=Value) == Value(bool_value=True)
    assert decode(frame(1, b"\0\x08\x05"), protobuf=Duration) == Duration(seconds=5)
    for value, words in ((b"\0\x20\x01", "it is the message"), (b"\x02\x02\x20", "end early")):
        with pytest.raises(Undecodable, match=words):
            decode(frame(1, value), protobuf=Value)
    assert registry.asked == []
    with pytest.raises(HandlerError, match="a class that protoc generated"):
        Registry(protobuf=int)


# Settings and `bridge check`


def find_check_findings(url: str) -> list[tuple[str, str]]:
    settings = Settings(FileSettings(), EnvironmentSettings(SCHEMA_REGISTRY_URL=url), "", {})
    return [(found.level, found.text) for found in setup_check._registry(settings)]


def test_the_check_asks_the_registry_and_says_what_is_wrong(registry):
    (found,) = find_check_findings(registry.url)
    assert found == (
        "ok",
        f"the schema registry at {registry.url} answers; it has schemas of AVRO, JSON, PROTOBUF.",
    )
    registry.status = 403
    (found,) = find_check_findings(registry.url)
    assert found[0] == "fault"
    assert "refuses these credentials (HTTP 403)" in found[1]
    assert find_check_findings("") == []


@pytest.mark.parametrize("code", [404, 40403])
def test_the_check_of_a_server_without_the_api_says_so_however_that_says_not_found(registry, monkeypatch, code):
    monkeypatch.setattr(registry, "answer", lambda path, login: (404, {"error_code": code, "message": "not found"}))
    (found,) = find_check_findings(registry.url)
    assert found == (
        "fault",
        f"the schema registry {registry.url} is unavailable: this address has no such API (HTTP 404): see "
        "SCHEMA_REGISTRY_URL (Apicurio's ends in /apis/ccompat/v7).",
    )


def test_a_handler_that_asks_a_registry_needs_its_address():
    charge = Handler("charge", ("orders",), "q", 1, 1, reads_schemas=True)
    settings = Settings(FileSettings(), EnvironmentSettings(), "", {})
    (fault,) = find_registry_faults(settings, Routes({"charge": charge}))
    assert fault == "charge: codec=Registry() asks a schema registry: set SCHEMA_REGISTRY_URL."


@pytest.mark.parametrize("library", ["certifi", "fastavro", "jsonschema.exceptions", "google.protobuf"])
def test_a_handler_that_asks_a_registry_does_not_start_without_the_extra(library):
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from bridge.handler_routes import Handler, Routes\n"
        "from bridge.settings import EnvironmentSettings, FileSettings, Settings\n"
        "from bridge.settings.settings_validation import find_registry_faults\n"
        "settings = Settings(FileSettings(), EnvironmentSettings(SCHEMA_REGISTRY_URL='http://registry'), '', {})\n"
        "for asks in (True, False):\n"
        "    charge = Handler('charge', ('orders',), 'q', 1, 1, reads_schemas=asks)\n"
        "    print(*find_registry_faults(settings, Routes({'charge': charge})))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ended.stdout.splitlines() == [
        f"charge: codec=Registry() needs the extra registry ({library} is not installed); "
        "in a clone of the project's repository: pip install '.[registry]'.",
        "",
    ]


def test_a_handler_that_asks_a_registry_starts_with_the_extra():
    charge = Handler("charge", ("orders",), "q", 1, 1, reads_schemas=True)
    settings = Settings(FileSettings(), EnvironmentSettings(SCHEMA_REGISTRY_URL="http://registry"), "", {})
    assert find_registry_faults(settings, Routes({"charge": charge})) == []


def test_a_generated_class_needs_no_address_of_a_registry():
    assert (Registry().reads_schemas, Registry(protobuf=Duration).reads_schemas) == (True, False)
