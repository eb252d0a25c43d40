"""What is handed off is what Celery itself would send."""

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from celery import Celery
from celery.signals import before_task_publish

from bridge.dispatch.celery_broker import CeleryBroker, make_broker_connection
from bridge.dispatch.celery_message import OutgoingBatch
from bridge.errors import HandoffFailed
from bridge.formats.celery_header import HEADER, to_header
from bridge.formats.delivery import Batch, Delivery, Message
from bridge.formats.delivery_identity import label_records
from bridge.handler_routes import find_routes
from lossless.worker.publisher_confirms import ConfirmingAMQP
from tasks.declaration.celery_defaults import OWN_DEFAULTS as DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tasks.declaration.handler_task import HandlerTask

pytestmark = pytest.mark.filterwarnings("ignore::celery.exceptions.CDeprecationWarning")

MESSAGE = Message("orders", 3, 1234, b"k", b"\x00value", (("timelimit", b"5"), ("id", b"x")), 1_700_000_000_000)


def outgoing(handler: str, *messages: Message) -> OutgoingBatch:
    """A batch of these messages, all of one partition, on its way out."""
    first = messages[0]
    deliveries = tuple(Delivery(message, handler) for message in messages)
    batch = Batch(handler, first.topic, first.partition, deliveries, "cluster", "bridge", "id")
    return OutgoingBatch(
        handler, batch.task_id, label_records(first.topic, first.partition, batch.offsets), to_header(batch)
    )


def charge(order):
    return order


def bound(self, order):
    return order


@pytest.fixture
def queue() -> str:
    """memory:// is one for the whole process."""
    return f"queue-{uuid.uuid4().hex}"


@pytest.fixture
def app(queue: str) -> Iterator[Celery]:
    app = Celery("handoff", set_as_current=False)
    app.add_defaults(lambda: {**DEFAULTS, "broker_url": "memory://", "task_default_queue": queue})
    yield app
    app.close()


@pytest.fixture
def taken(app: Celery, queue: str) -> Callable[[], dict[str, Any]]:
    """The next message of the queue, as it lies there."""

    def take() -> dict[str, Any]:
        with app.connection_for_read() as connection:
            channel: Any = connection.default_channel
            raw: dict[str, Any] = json.loads(json.dumps(channel._get(queue), default=str))
            return raw

    return take


def unlike(raw: dict[str, Any]) -> dict[str, Any]:
    """Without what is another in each message, what apply_async's own options leave behind, and where Celery's
    RPC results would go: the bridge wants none."""
    for name in ("delivery_tag", "argsrepr", "reply_to"):
        raw["properties"].pop(name, None)
    return raw


def by_celery(task: HandlerTask, sent: OutgoingBatch) -> None:
    send: Any = task.apply_async
    send((), {}, task_id=sent.task_id, headers={HEADER: sent.header}, argsrepr=sent.label)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"time_limit": 30, "soft_time_limit": 20},
        {"priority": 7},
        {"ignore_result": False},
        {"serializer": "json", "rate_limit": "5/s", "bind": True},
    ],
    ids=repr,
)
def test_a_handed_off_message_is_the_one_that_apply_async_sends(app, queue, taken, options):
    task = declare_handler(app, ["orders"], {"name": "charge", **options})(bound if options.get("bind") else charge)
    sent = outgoing("charge", MESSAGE, replace(MESSAGE, offset=1240))
    CeleryBroker(app).publish([sent])
    ours = taken()
    by_celery(task, sent)
    theirs = taken()
    ours, theirs = unlike(ours), unlike(theirs)
    assert ours["properties"].pop("gates") == "bridge:topic:orders"
    assert ours["properties"] == theirs["properties"]
    assert ours["headers"] == theirs["headers"]
    assert ours == theirs
    assert ours["headers"]["id"] == "orders-3-1234..1240:charge"
    assert ours["headers"]["argsrepr"] == "(orders-3-1234..1240, 2 messages: orders-3-1234 orders-3-1240)"
    assert ours["headers"][HEADER] == sent.header
    assert ours["headers"]["timelimit"] == [options.get("time_limit"), options.get("soft_time_limit")]


def test_only_the_messages_of_a_halted_handler_name_its_gate(app, taken):
    for name in ("charge", "notify"):
        declare_handler(app, ["orders"], {"name": name})(charge)
    broker, gate = CeleryBroker(app), "bridge:held:orders:charge"
    broker.held_gates = {("orders", "charge"): gate, ("mail", "notify"): "bridge:held:mail:notify"}
    broker.publish([outgoing("charge", MESSAGE), outgoing("notify", MESSAGE)])
    assert [taken()["properties"]["gates"] for _ in range(2)] == [f"bridge:topic:orders {gate}", "bridge:topic:orders"]


def test_deliveries_keep_their_order_and_their_own(app, taken):
    declare_handler(app, ["orders"], {"name": "charge"})(charge)
    sent = [outgoing("charge", Message("orders", 0, offset, value=str(offset).encode())) for offset in range(9)]
    CeleryBroker(app).publish(sent)
    found = [taken()["headers"] for _ in sent]
    assert [headers["id"] for headers in found] == [each.task_id for each in sent]
    assert [headers["root_id"] for headers in found] == [each.task_id for each in sent]
    assert [headers[HEADER] for headers in found] == [each.header for each in sent]


def test_a_handlers_own_queue_and_celerys_routes_are_obeyed(app, queue):
    app.amqp.queues.add(f"{queue}.routed")
    app.conf.task_routes = {"routed": {"queue": f"{queue}.routed"}}
    declare_handler(app, ["orders"], {"name": "own", "queue": f"{queue}.own"})(charge)
    declare_handler(app, ["orders"], {"name": "routed"})(charge)
    declare_handler(app, ["orders"], {"name": "default"})(charge)
    broker = CeleryBroker(app)
    broker.publish(outgoing(name, MESSAGE) for name in ("own", "routed", "routed", "default"))
    assert broker.read_lengths([queue, f"{queue}.own", f"{queue}.routed", f"{queue}.none"]) == {
        queue: 1,
        f"{queue}.own": 1,
        f"{queue}.routed": 2,
        f"{queue}.none": 0,
    }


def test_a_route_with_a_routing_key_alone_leads_to_the_default_queue_for_all_who_ask(app, queue):
    app.conf.task_routes = {"routed": {"routing_key": f"{queue}.key"}}
    declare_handler(app, ["orders"], {"name": "routed"})(charge)
    routes, _ = find_routes(app)
    assert routes.queues == [queue]
    broker = CeleryBroker(app)
    broker.publish([outgoing("routed", MESSAGE)])
    assert broker.read_lengths([queue]) == {queue: 1}


def test_a_route_to_a_queue_that_nobody_declares_is_a_fault_with_its_name(app, queue):
    app.conf.task_routes = {"routed": {"queue": f"{queue}.mistyped"}}
    declare_handler(app, ["orders"], {"name": "routed"})(charge)
    (fault,) = find_routes(app)[1]
    assert fault.startswith(f"routed: Queue '{queue}.mistyped' missing")


def test_expires_counts_from_the_hand_off(app, taken):
    task = declare_handler(app, ["orders"], {"name": "charge", "expires": 60})(charge)
    CeleryBroker(app).publish([outgoing("charge", MESSAGE)])
    ours = taken()["headers"]["expires"]
    by_celery(task, outgoing("charge", MESSAGE))
    theirs = taken()["headers"]["expires"]
    assert ours[:16] == theirs[:16] or ours < theirs
    assert len(ours) == len(theirs)


def test_receivers_of_before_task_publish_see_each_delivery(app, taken):
    declare_handler(app, ["orders"], {"name": "charge"})(charge)
    seen = []

    def look(sender: str, headers: dict[str, Any], routing_key: str, **_: Any) -> None:
        headers["traced"] = "yes"
        seen.append((sender, headers["id"]))

    before_task_publish.connect(look)
    try:
        CeleryBroker(app).publish([outgoing("charge", MESSAGE)])
    finally:
        before_task_publish.disconnect(look)
    assert seen == [("charge", "orders-3-1234:charge")]
    assert taken()["headers"]["traced"] == "yes"


@pytest.mark.parametrize("url", ["amqp://a//", "amqps://a//", "pyamqp://a//", "amqp://a//;amqp://b//"])
def test_rabbitmq_is_asked_to_confirm_what_the_bridge_and_tasks_send(url: str):
    used = Celery("mine", set_as_current=False, broker=url, amqp=ConfirmingAMQP)
    with make_broker_connection(used) as bridges, used.amqp.producer_pool.connections.connection as tasks:
        assert [(each.transport_options or {})["confirm_publish"] for each in (bridges, tasks)] == [True, True]


def test_a_broker_that_is_away_is_one_kind_of_error():
    app = Celery("away", set_as_current=False)
    app.add_defaults(lambda: {**DEFAULTS, "broker_url": "redis://:secret@127.0.0.1:1/0"})
    declare_handler(app, ["orders"], {"name": "charge"})(charge)
    broker = CeleryBroker(app)
    for ask in (lambda: broker.publish([outgoing("charge", MESSAGE)]), lambda: broker.read_lengths(["celery"])):
        with pytest.raises(HandoffFailed) as failed:
            ask()
        assert "secret" not in str(failed.value)
    app.close()
