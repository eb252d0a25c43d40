"""A letter that an Avro schema wrote reads as well as a JSON one: on pages, in searches, behind masks, in edits."""

import datetime
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from bridge.console.console import Console
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import letter_payload, position_rows
from bridge.deadletters.db.position_rows import PositionStep, RecordedLog, RecordedPosition
from bridge.deadletters.editing.json_patch import ValuePatch
from bridge.deadletters.model.bulk_plan import PlanOptions
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.payload_codec import PayloadCodec
from bridge.deadletters.recorder.batch_writer import BatchWriter, ReadRecord
from bridge.errors import EditRefused
from bridge.formats.schema_registry import RegistryOptions
from bridge.settings import EnvironmentSettings
from tasks import Registry
from tasks.declaration import message_codec
from tasks.declaration.handler_declaration import declare_handler
from tests.desk.letters import letter
from tests.schema_registry import ORDER_SCHEMA, RegistryServer, frame, serve_registry, write_avro
from tests.web.conftest import signed_in
from tests.web.payload_lines import read_lines
from tests.web.test_api import Program

TAKE = "orders.handlers.take"
PLACED = datetime.datetime(2026, 11, 26, 12, 30, tzinfo=datetime.UTC)
ORDER = {"id": 7, "amount": Decimal("12.50"), "placed": PLACED, "customer": {"email": "zebra@example.org"}}
BODY = write_avro(ORDER_SCHEMA, ORDER)
LOG = RecordedLog("bridge", "orders.dlq", "id", 0)


class Order(BaseModel):
    id: int
    amount: Decimal


@pytest.fixture(scope="module")
def served() -> Iterator[RegistryServer]:
    with serve_registry() as server:
        server.add(ORDER_SCHEMA)
        yield server


@pytest.fixture
def registry(served: RegistryServer, desk: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", served.url)
    served.status = 0
    message_codec.find_registry.cache_clear()
    desk.database.payloads = PayloadCodec.from_options(RegistryOptions(served.url))

    def take(order: Order) -> None:
        raise AssertionError("it runs")

    declare_handler(desk.app, ("orders",), {"name": TAKE, "codec": Registry()})(take)
    yield served
    message_codec.find_registry.cache_clear()


@pytest.fixture
def dead(registry: RegistryServer, desk: Any) -> Any:
    """Records letters as the recorder does."""

    def recorded(*letters: Any) -> None:
        with desk.database.writing() as connection:
            begin = PositionStep(LOG, None, RecordedPosition(0, -1))
            position_rows.move_positions(connection, [begin], 1)
        reads = [ReadRecord(LOG, each.offset, 0, each) for each in letters]
        BatchWriter(desk.database, 1_000_000).write(reads, {LOG: RecordedPosition(0, -1)})

    return recorded


@pytest.fixture
def died(dead: Any) -> None:
    """A letter with the id in its value, and one with the id in a header."""
    headers = (("__value_schema_id", frame(1, b"")),)
    dead(letter(1, handler=TAKE, value=frame(1, BODY)), letter(2, handler=TAKE, value=BODY, headers=headers))


def sent(desk: Any, plan: Any) -> dict[int, bytes | None]:
    with desk.database.reading() as connection:
        return {each.id: each.value for each in letter_payload.read_letter_contents(connection, plan.id, [1, 2])}


@pytest.mark.parametrize("id_", [1, 2])
def test_its_page_shows_json_and_its_schema_and_the_bytes_in_hexadecimal(died, browser, id_):
    page = browser().get(f"/letters/{id_}").text
    assert {'"email": "zebra@example.org"', '"amount": 12.50'} <= {line.strip(" ,") for line in read_lines(page)}
    assert "Avro, schema 1" in page
    assert "Its handler would accept it now" in page
    assert BODY[:4].hex(" ") in browser().get(f"/letters/{id_}?value=hex").text


def test_its_download_is_byte_for_byte(died, browser):
    assert browser().get("/letters/1/value").content == frame(1, BODY)


def test_it_is_found_by_the_words_of_its_value(died, desk):
    assert [each.id for each in desk.letters.each(LetterFilter(text="zebra"))] == [2, 1]


def test_the_api_gives_its_value_as_json_and_its_schema(died, console):
    found = Program(console, Role.VIEWER).get("/letters/1").json()
    assert json.loads(found["value"]["data"])["customer"] == {"email": "zebra@example.org"}
    assert found["format"] == "Avro, schema 1"


def test_a_role_with_masks_finds_nothing_of_a_masked_field(died, desk):
    settings = replace(desk.settings, environment=EnvironmentSettings(DEADLETTERS_MASK="orders: customer.email"))
    masked = Console(replace(desk, settings=settings), "shop")
    program = Program(masked, Role.VIEWER)
    exported = program.client.post("/api/v1/letters/export", json={}, headers=program.headers)
    pages = [signed_in(masked, Role.VIEWER).get(f"/letters/1{way}").text for way in ("", "?value=hex", "?value=sent")]
    for text in (*pages, program.get("/letters/1").text, exported.text):
        assert "zebra" not in text
        assert b"zebra".hex(" ") not in text
    assert "[masked]" in pages[0]
    assert '"amount": 12.50' in {line.strip(" ,") for line in read_lines(pages[0])}
    assert program.get("/letters/1/value").status_code == 403


@pytest.mark.parametrize("id_", [1, 2])
def test_an_edit_is_written_by_the_schema_that_wrote_the_value(died, desk, id_):
    value = desk.mending.text(id_).replace("12.50", "99.99").encode()
    plan = desk.mending.edit(id_, value, "ann")
    body = write_avro(ORDER_SCHEMA, ORDER | {"amount": Decimal("99.99")})
    assert sent(desk, plan)[id_] == (frame(1, body) if id_ == 1 else body)
    (difference,) = desk.mending.differences(plan.id)
    assert difference.text.splitlines()[-1:] != []
    assert '-  "amount": 12.50,' in difference.text
    assert '+  "amount": 99.99,' in difference.text


def test_an_edit_that_does_not_fit_the_schema_is_refused_and_says_where(died, desk):
    value = desk.mending.text(1).replace("12.50", "1.999").encode()
    with pytest.raises(EditRefused, match="does not fit Avro, schema 1: amount takes a number of 9 digits"):
        desk.mending.edit(1, value, "ann", force=True)
    assert "amount takes" in desk.mending.tried(1, value.decode()).said.why


@pytest.mark.parametrize("id_", [1, 2])
def test_an_edit_may_be_the_bytes_themselves(died, desk, id_):
    body = write_avro(ORDER_SCHEMA, ORDER | {"id": 8})
    value = frame(1, body) if id_ == 1 else body
    assert sent(desk, desk.mending.edit(id_, value, "ann"))[id_] == value
    with pytest.raises(EditRefused, match=r"does not fit|is no JSON"):
        desk.mending.edit(id_, value[:-1], "ann")


def test_a_patch_is_written_by_the_schema_and_leaves_out_what_does_not_fit_it(died, desk):
    patch = ValuePatch.read('[{"op": "replace", "path": "/id", "value": 9}]')
    plan = desk.mending.patch(LetterFilter(handlers=(TAKE,)), patch, PlanOptions(), "ann")
    body = write_avro(ORDER_SCHEMA, ORDER | {"id": 9})
    assert sent(desk, plan) == {1: frame(1, body), 2: body}
    bad = ValuePatch.read('[{"op": "add", "path": "/colour", "value": "red"}]')
    (sample,) = desk.mending.samples([1], bad)
    assert "colour is no field of the schema" in sample.why


def test_a_masked_field_survives_the_edit_of_a_role_that_does_not_see_it(died, desk):
    settings = replace(desk.settings, environment=EnvironmentSettings(DEADLETTERS_MASK="orders: customer.email"))
    masks = Console(replace(desk, settings=settings), "shop").masking
    editing = desk.editing(masks.of_role(Role.OPERATOR))
    text = editing.offered(1).text
    assert "zebra" not in text
    tried = editing.tried(1, text.replace("12.50", "1.00"))
    plan = editing.edit(1, tried.value, "ann", "", force=False)
    assert sent(desk, plan)[1] == frame(1, write_avro(ORDER_SCHEMA, ORDER | {"amount": Decimal("1.00")}))


def test_a_value_of_an_unknown_schema_is_shown_as_bytes_and_says_so(dead, browser, desk):
    dead(letter(1, value=frame(404, b"zebra")))
    page = browser().get("/letters/1").text
    assert "has no schema 404" in page
    assert desk.letters.one(1).value == frame(404, b"zebra")


def test_while_the_registry_is_down_letters_are_recorded_and_shown_as_bytes_and_no_edit_is_sent(dead, registry, desk):
    registry.status = 503
    dead(letter(1, handler=TAKE, value=frame(1, BODY)))
    found = desk.letters.one(1)
    assert found.value == frame(1, BODY)
    assert "is unavailable" in found.schema
    with pytest.raises(EditRefused, match="is unavailable"):
        desk.mending.edit(1, b"{}", "ann")
