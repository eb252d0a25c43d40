"""`unique_by`: which messages have a name, and which options are refused."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from celery import Celery
from pydantic import BaseModel, Field, model_validator

from tasks import HandlerTask, Message
from tasks.declaration.celery_defaults import DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tasks.declaration.unique_name import DEFAULT_WINDOW
from tasks.errors import DeadLetter, HandlerError, RetryLater


@pytest.fixture
def handler() -> Iterator[Callable[..., Any]]:
    app = Celery("handlers", set_as_current=False)
    app.conf.update(DEFAULTS)
    yield lambda *topics, **options: declare_handler(app, topics, options)
    app.close()


class Buyer(BaseModel):
    id: int


class Order(BaseModel):
    id: str
    buyer: Buyer


def message(value: bytes | None = b"{}", **headers: bytes) -> Message:
    return Message("orders", 3, 7, key=b"k", value=value, headers=tuple(headers.items()))


def named(handler: Any, by: Any, **options: Any) -> HandlerTask[..., Any]:
    @handler("orders", unique_by=by, **options)
    def charge(order: Any) -> None: ...

    made: HandlerTask[..., Any] = charge
    return made


@pytest.mark.parametrize(
    ("headers", "name"),
    [({"message_id": b"a-1"}, b"a-1"), ({}, None), ({"message_id": b""}, None), ({"other": b"a-1"}, None)],
)
def test_a_header_names_a_message_and_without_it_there_is_no_name(handler, headers: Any, name: bytes | None) -> None:
    assert named(handler, "header:message_id").find_unique_name(message(**headers)) == name


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (b'{"order": {"id": 12}}', b"12"),
        (b'{"order": {"id": "a-1"}}', b"a-1"),
        (b'{"order": {}}', None),
        (b'{"order": 12}', None),
        (b"[]", None),
        (b"no json", None),
        (None, None),
    ],
)
def test_a_field_of_the_decoded_value_names_a_message(handler, value: bytes | None, name: bytes | None) -> None:
    assert named(handler, "field:order.id").find_unique_name(message(value)) == name


def test_a_value_that_cannot_be_read_now_is_not_run_without_its_name(handler) -> None:
    def read(value: bytes) -> Any:
        raise RetryLater(10, "the schema registry is down")

    with pytest.raises(RetryLater):
        named(handler, "field:order.id", codec=read).find_unique_name(message())


def test_a_field_of_a_model_names_a_message(handler) -> None:
    @handler("orders", unique_by="field:buyer.id")
    def charge(order: Order) -> None: ...

    assert charge.find_unique_name(message(b'{"id": "a", "buyer": {"id": 5}}')) == b"5"


@pytest.mark.parametrize(
    ("found", "name"),
    [
        ("ü", "ü".encode()),
        (b"\xff", b"\xff"),
        (7, b"7"),
        (UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
        (None, None),
        ("", None),
    ],
)
def test_a_function_of_the_message_names_it(handler, found: Any, name: bytes | None) -> None:
    assert named(handler, lambda message: found).find_unique_name(message()) == name


@pytest.mark.parametrize("found", [["a"], 1.5, True, {"id": 1}])
def test_what_is_no_name_is_a_dead_letter_that_says_where(handler, found: Any) -> None:
    with pytest.raises(DeadLetter, match=r"unique_by=.*lambda.* found a .* in orders-3-7"):
        named(handler, lambda message: found).find_unique_name(message())


async def never(message: Message) -> str:
    return ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"unique_by": "message_id"}, 'is "header:message_id" or "field:message_id" meant?'),
        ({"unique_by": "header:"}, "it was given 'header:'"),
        ({"unique_by": "key:x"}, "it was given 'key:x'"),
        ({"unique_by": "field: id"}, "it was given 'field: id'"),
        ({"unique_by": "field:order..id"}, "it was given 'field:order..id'"),
        ({"unique_by": "header:id "}, "it was given 'header:id '"),
        ({"unique_by": 5}, "it was given 5"),
        ({"unique_by": Order}, "unique_by takes"),
        ({"unique_by": never}, "is async, or yields"),
        ({"unique_by": lambda: ""}, "is called with the message alone"),
        ({"unique_by": "field:id", "codec": bytes}, "codec=bytes the value has no fields"),
        ({"unique_for": 60}, "unique_for needs unique_by"),
        ({"unique_by": "header:a", "bulk": 9}, "the run of one message, bulk=9 gives a run many: leave one out"),
        ({"unique_by": "header:a", "unique_for": 0}, "unique_for takes seconds, from 1 to 2,592,000"),
        ({"unique_by": "header:a", "unique_for": float("nan")}, "it was given nan"),
        ({"unique_by": "header:a", "unique_for": True}, "it was given True"),
    ],
)
def test_an_option_that_names_nothing_is_refused_at_import(handler, options: dict[str, Any], words: str) -> None:
    with pytest.raises(HandlerError) as refused:

        @handler("orders", **options)
        def charge(order: Any) -> None: ...

    assert words in str(refused.value)
    assert str(refused.value).startswith(f"{__name__}.charge: ")


class Renamed(BaseModel):
    order_id: int = Field(alias="orderId")


class Loose(BaseModel, extra="allow"):
    id: int


class Derived(BaseModel):
    id: int

    @property
    def name(self) -> str:
        return f"order-{self.id}"


class Rebuilt(BaseModel):
    id: int

    @model_validator(mode="wrap")
    @classmethod
    def rebuild(cls, value: Any, build: Any) -> Any:
        return Loose.model_validate({"id": build(value).id, "name": "n"})


@dataclass
class Row:
    id: int


@dataclass
class Prepared:
    id: int

    def __post_init__(self) -> None:
        self.name = f"order-{self.id}"


@pytest.mark.parametrize(
    ("kind", "by", "words"),
    [
        (Order, "field:name", "unique_by='field:name': Order has no field 'name': it has id, buyer."),
        (Order | None, "field:name.id", "Order has no field 'name'"),
        (Renamed, "field:orderId", "Renamed has no field 'orderId': it has order_id."),
        (Row, "field:name", "Row has no field 'name': it has id."),
    ],
)
def test_a_field_that_the_model_has_not_is_refused_at_import(handler, kind: Any, by: str, words: str) -> None:
    def charge(order: Any) -> None: ...

    charge.__annotations__["order"] = kind
    with pytest.raises(HandlerError) as refused:
        handler("orders", unique_by=by)(charge)
    assert words in str(refused.value)


@pytest.mark.parametrize("kind", [Loose, Derived, Rebuilt, Prepared, Order | Row, list[Order], dict, Any])
def test_a_field_that_a_value_may_have_is_taken(handler, kind: Any) -> None:
    def charge(order: Any) -> None: ...

    charge.__annotations__["order"] = kind
    assert handler("orders", unique_by="field:name")(charge).unique is not None


@pytest.mark.parametrize("options", [{"codec": lambda value: value}, {"upgrade": lambda value: value}])
def test_of_a_value_that_a_function_makes_the_fields_are_not_known(handler, options: dict[str, Any]) -> None:
    @handler("orders", unique_by="field:name", **options)
    def charge(order: Order) -> None: ...

    assert charge.unique is not None


def test_without_the_option_no_message_has_a_name_and_the_window_is_an_hour(handler) -> None:
    plain = named(handler, None)
    assert (plain.unique, plain.find_unique_name(message(message_id=b"a"))) == (None, None)

    @handler("orders", unique_by="header:a")
    def other(order: Any) -> None: ...

    assert other.unique is not None
    assert (other.unique.seconds, DEFAULT_WINDOW) == (3_600, 3_600)


def test_a_renamed_handler_knows_the_names_of_its_old_name(handler) -> None:
    renamed = named(handler, "header:a", name="new.charge", aliases=("old.charge",))
    old: Any = renamed.app.tasks["old.charge"]
    assert renamed.unique == old.unique
    assert renamed.unique is not None
    assert renamed.unique.scope == "old.charge"
