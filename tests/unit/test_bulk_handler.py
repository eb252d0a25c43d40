"""The declaration of a bulk handler: what it is given, and what is refused when its module is imported."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
from celery import Celery
from pydantic import BaseModel

import tasks
from bridge.dispatch import batch_sizer
from bridge.formats.delivery import Message
from bridge.handler_routes import find_routes
from tasks import HandlerError, Messages
from tasks.declaration.bulk_messages import BulkCall
from tasks.declaration.celery_defaults import OWN_DEFAULTS
from tasks.declaration.handler_declaration import declare_handler


class Order(BaseModel):
    id: int


@pytest.fixture
def app() -> Iterator[Celery]:
    made = Celery("handlers", set_as_current=False)
    made.conf.update(OWN_DEFAULTS)
    yield made
    made.close()


@pytest.fixture
def handler(app: Celery) -> Callable[..., Any]:
    return lambda *topics, **options: declare_handler(app, topics, options)


def called(task: Any, *values: bytes | None) -> tuple[Any, BulkCall]:
    call = BulkCall([Message("orders", 0, at, value=value) for at, value in enumerate(values)], {})
    return task.call_bulk(call), call


@pytest.mark.parametrize("kind", [list[Order], Sequence[Order], Iterable[Order], "list[Order]"])
def test_each_value_is_validated_by_the_lists_element(handler, kind):
    def store(orders: Any) -> Any:
        return orders

    store.__annotations__["orders"] = kind
    task = handler("orders", bulk=9)(store)
    found, call = called(task, b'{"id": 1}', b'{"id": "x"}', b'{"id": 3}', None)
    assert found == [Order(id=1), Order(id=3), None]
    assert [*call.set_aside] == [1]
    assert task.check_value(b'{"id": "x"}').ok is False


@pytest.mark.parametrize("annotation", [None, list, Any, Sequence])
def test_without_an_element_values_are_as_the_codec_gives_them(handler, annotation):
    def store(orders: Any) -> Any:
        return orders

    if annotation is not None:
        store.__annotations__["orders"] = annotation
    assert called(handler("orders", bulk=9)(store), b"[1]", b'"x"')[0] == [[1], "x"]


def test_messages_are_given_by_their_name_or_annotation_in_any_place(handler):
    def by_name(orders, messages):
        return [message.offset for message in messages]

    def first(found: Messages, orders):
        return len(found), orders

    def alone(found: "tasks.Messages"):
        return [message.value for message in found]

    assert called(handler("orders", bulk=9)(by_name), b"1", b"2")[0] == [0, 1]
    assert called(handler("orders", bulk=9)(first), b"1", b"2")[0] == (2, [1, 2])
    assert called(handler("orders", bulk=9)(alone), b"1")[0] == [b"1"]


def test_an_async_bulk_handler_is_awaited(handler):
    async def store(orders):
        return sum(orders)

    assert called(handler("orders", bulk=9)(store), b"1", b"2")[0] == 3


def _one(order: Order): ...


def _list_of_messages(messages: list[Message]): ...


def _message(orders: list[Order], message: Message): ...


def _by_other_name(orders: list[Order], message): ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_one, r"annotate list\[\.\.\.\], and not Order"),
        (_list_of_messages, "takes its messages as Messages"),
        (_message, "takes Messages, and not Message: see 'message'"),
        (_by_other_name, "asks for it, `messages`; nothing is there to fill 'message'"),
    ],
)
def test_a_function_for_one_message_is_refused(handler, function, words):
    with pytest.raises(HandlerError, match=words):
        handler("orders", bulk=9)(function)


def test_messages_are_refused_where_one_record_is_handled(handler):
    def charge(order, messages: Messages): ...

    with pytest.raises(HandlerError, match="Messages are given to a bulk handler: see 'messages', and the option bulk"):
        handler("orders")(charge)


@pytest.mark.parametrize(("bulk", "annotation"), [(None, "Messages"), (9, "list[Message]"), (None, "Message")])
def test_a_class_of_the_users_may_have_the_name_of_one_of_ours(handler, bulk, annotation):
    class Inbox(BaseModel):
        id: int

    there: dict[str, Any] = {"__name__": "orders", "Messages": Inbox, "Message": Inbox}
    exec(f"from __future__ import annotations\ndef store(inbox: {annotation}): return inbox", there)
    task = handler("orders", **({} if bulk is None else {"bulk": bulk}))(there["store"])
    message = Message("orders", 0, 7, value=b'{"id": 1}')
    found = task.call(message) if bulk is None else called(task, message.value)[0]
    assert found == (Inbox(id=1) if bulk is None else [Inbox(id=1)])


@pytest.mark.parametrize("annotation", ["Messages", "tasks.Messages"])
def test_our_class_is_known_by_its_name_where_only_a_type_checker_imports_it(handler, annotation):
    there: dict[str, Any] = {"__name__": "orders"}
    exec(f"from __future__ import annotations\ndef store(orders, inbox: {annotation}): return len(inbox)", there)
    assert called(handler("orders", bulk=9)(there["store"]), b"1", b"2")[0] == 2


def test_its_tasks_carry_as_many_deliveries_as_a_call_takes(app, handler):
    def store(orders): ...

    task = handler("orders", bulk=500, name="store", rate_limit="5/s", time_limit=0.5)(store)
    assert (task.batch, task.batch_seconds, task.one_by_one) == (500, 30.0, "")
    found = find_routes(app)[0].handlers["store"]
    assert (found.batch, batch_sizer._first_size(found).why) == (500, "given as bulk=")
