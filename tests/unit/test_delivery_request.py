"""What the main process believes of a look at a message, before its child does."""

import gc
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.worker import state

from bridge.formats.celery_header import HEADER
from lossless.transport.delayed_messages import JOINS
from lossless.transport.script_hook import LOOKED
from tasks.worker.delivery_request import SETTLE_WITHIN, DeliveryRequest, RecentEnds, recent_ends


class Ours:
    def bundle_with_ack(self, *_: Any) -> None:
        """The transport takes a step along."""


def request(channel: Any, task_id: str = "orders-0-1:h", **headers: Any) -> Any:
    app = Celery("unit", set_as_current=False)

    @app.task(name="h", shared=False)
    def h() -> None:
        """Does nothing."""

    message = SimpleNamespace(
        headers={"id": task_id, "task": "h", "lang": "py", **headers},
        properties={LOOKED: (1.0, "f"), "correlation_id": task_id},
        delivery_info={"exchange": "", "routing_key": "q"},
        payload=[[], {}, {}],
        body="W1tdLCB7fSwge31d",
        content_type="application/json",
        content_encoding="utf-8",
        channel=channel,
        decode=lambda: [[], {}, {}],
    )
    return DeliveryRequest(message, app=app, task=h, hostname="here", decoded=True, body=([], {}, {}), utc=True)


def test_a_look_that_our_transport_took_along_is_believed() -> None:
    assert request(Ours()).request_dict["properties"][LOOKED] == (1.0, "f")


def test_what_another_transport_lets_through_is_a_senders_word() -> None:
    assert LOOKED not in request(object()).request_dict["properties"]


def test_a_look_from_before_the_delivery_ended_here_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = RecentEnds()
    monkeypatch.setattr("tasks.worker.delivery_request.recent_ends", ends)
    ends.add("orders-0-1:h")  # now, and the look is of the first second of the clock
    assert LOOKED not in request(Ours()).request_dict["properties"]
    assert LOOKED in request(Ours(), "orders-0-2:h").request_dict["properties"]


def test_a_second_message_of_a_delivery_that_is_here_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = request(Ours())
    monkeypatch.setitem(state.requests, first.id, first)
    assert LOOKED not in request(Ours()).request_dict["properties"]
    assert LOOKED in request(Ours(), "orders-0-2:h").request_dict["properties"]


def test_a_message_of_a_delivery_that_is_here_as_sent_back_or_was_until_now_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent_back = request(Ours(), "orders-0-3:h#2")
    assert LOOKED in sent_back.request_dict["properties"]
    assert LOOKED not in request(Ours(), "orders-0-3:h").request_dict["properties"]
    del sent_back
    gc.collect()
    assert LOOKED in request(Ours(), "orders-0-3:h").request_dict["properties"]
    live = request(Ours(), "orders-0-4:h")
    monkeypatch.setitem(state.requests, live.id, live)
    assert LOOKED not in request(Ours(), "orders-0-4:h#2").request_dict["properties"]
    recent_ends.add("orders-0-5:h")
    assert LOOKED not in request(Ours(), "orders-0-5:h#2").request_dict["properties"]


def test_a_task_that_retries_of_other_batches_have_joined_names_them_all() -> None:
    rows = [[offset, None, None, None, None] for offset in (5, 9, 2)]
    header = {"topic": "orders", "partition": 3, "messages": rows}
    theirs: dict[str, Any] = {"argsrepr": "(orders-3-5)", HEADER: header}
    shown = request(Ours(), **{**theirs, JOINS: {}})
    assert shown.argsrepr == "(orders-3-2..9, 3 messages: orders-3-2 orders-3-5 orders-3-9)"
    assert shown.request_dict["argsrepr"] == shown.argsrepr
    assert request(Ours(), **theirs).argsrepr == "(orders-3-5)"


@pytest.mark.parametrize(
    ("conf", "limits", "expected"),
    [
        ({}, (None, None), (None, None)),
        ({"task_time_limit": 1}, (None, None), (1.5 + SETTLE_WITHIN, None)),
        ({"task_time_limit": 1, "task_soft_time_limit": 0.5}, (None, None), (1.5 + SETTLE_WITHIN,) * 2),
        ({"task_soft_time_limit": 0.5}, (None, None), (None, float(2**31))),
        ({"task_time_limit": 1}, (9, None), (9.5 + SETTLE_WITHIN, None)),
    ],
    ids=["none", "hard", "both", "soft", "the message's own"],
)
def test_a_limit_of_the_settings_is_a_messages_and_not_its_whole_tasks(
    monkeypatch: pytest.MonkeyPatch, conf: Any, limits: Any, expected: Any
) -> None:
    made = request(Ours())
    made.task.app.conf.update(conf)
    made.task.batch_seconds = 0.5
    made.request_dict.update({HEADER: {}, "timelimit": limits})
    again = DeliveryRequest(
        made.message, app=made.task.app, task=made.task, decoded=True, body=([], {}, {}), headers=made.request_dict
    )
    assert tuple(again.time_limits) == expected


@pytest.mark.parametrize(("bulk", "calls"), [(None, 1), (1, 3), (500, 11)])
def test_a_bulk_has_time_for_its_calls_until_a_culprit_is_alone(bulk: int | None, calls: int) -> None:
    made = request(Ours())
    made.task.bulk, made.task.batch_seconds, made.task.time_limit = bulk, 30.0, 10
    made.request_dict[HEADER] = {}
    again = DeliveryRequest(
        made.message, app=made.task.app, task=made.task, decoded=True, body=([], {}, {}), headers=made.request_dict
    )
    assert tuple(again.time_limits) == (10 * calls + 30 + SETTLE_WITHIN, None)
