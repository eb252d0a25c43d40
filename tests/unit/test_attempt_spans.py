"""The handler runs within its delivery's span, one by one, in bulk and side by side; a retry carries the hop on."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace

from bridge.formats.delivery import Batch, Delivery, Message
from bridge.formats.outbox import Outbox
from tasks import handler
from tasks.execution import attempt_spans
from tests.unit.test_batch_run import World
from tests.unit.test_delivery_spans import PRODUCER, span_of, traced
from tests.unit.test_delivery_spans import World as Spans

inside: list[str] = []
#: The headers of what handlers publish.
published: list[dict[str, Any]] = []
#: A number with which a handler raises an error without words.
UNPRINTABLE = 99


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def note(number: int) -> None:
    inside.append(f"{trace.get_current_span().get_span_context().trace_id:032x}")
    if number == UNPRINTABLE:
        raise Unprintable
    if number < 0:
        raise ConnectionError("no")


@handler("orders", name="traced.one", batch=9, retry_jitter=False)
def one(number: int) -> None:
    note(number)


@handler("orders", name="traced.bulk", bulk=9)
def in_bulk(numbers: list[int]) -> None:
    note(UNPRINTABLE if UNPRINTABLE in numbers else len(numbers))


@handler("orders", name="traced.beside", batch=9, concurrency=9)
async def beside(number: int) -> None:
    note(number)


@handler("orders", name="traced.publishes", batch=9)
def publishes(number: int, message: Message) -> None:
    message.publish("invoices", number, headers={"traceparent": b"mine"} if number == 2 else {"a": b"1"})
    assert message.outbox is not None
    published.extend(dict(each.headers) for each in message.outbox.messages)


@pytest.fixture
def untraced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the process choose again whether it traces: it does not."""
    monkeypatch.setattr(attempt_spans, "find_spans", lambda: None)
    monkeypatch.setattr(Outbox, "make_trace_headers", None)
    attempt_spans.find_attempt_classes.cache_clear()
    inside.clear()
    published.clear()
    yield
    attempt_spans.find_attempt_classes.cache_clear()


@pytest.fixture
def spans(untraced: None, monkeypatch: pytest.MonkeyPatch) -> Spans:
    made = Spans()
    monkeypatch.setattr(attempt_spans, "find_spans", lambda: made.spans)
    return made


def run(monkeypatch: pytest.MonkeyPatch, name: str, *values: int, flags: str = "01") -> World:
    world = World(monkeypatch)
    deliveries = [
        Delivery(Message("orders", 0, offset, value=b"%d" % value, headers=traced(flags=flags)), name)
        for offset, value in enumerate(values)
    ]
    world.run_batch(Batch(name, "orders", 0, tuple(deliveries)))
    return world


@pytest.mark.parametrize(("name", "count"), [("traced.one", 2), ("traced.beside", 2), ("traced.bulk", 1)])
def test_each_run_is_a_span_and_the_handler_is_inside(
    spans: Spans, monkeypatch: pytest.MonkeyPatch, name: str, count: int
):
    run(monkeypatch, name, 1, 2)
    assert spans.names == ["process orders"] * count
    assert inside == [PRODUCER] * count


@pytest.mark.parametrize("name", ["traced.one", "traced.beside"])
def test_unsampled_the_handler_has_the_producers_context_and_there_is_no_span(
    spans: Spans, monkeypatch: pytest.MonkeyPatch, name: str
):
    run(monkeypatch, name, 1, 2, flags="00")
    assert spans.exported == []
    assert inside == [PRODUCER] * 2


def test_a_retry_carries_the_run_that_failed(spans: Spans, monkeypatch: pytest.MonkeyPatch):
    world = run(monkeypatch, "traced.one", 1, -2)
    failed: Any = spans.exported[1]
    (again,) = world.batches[0].deliveries
    assert failed.status.description == "ConnectionError"
    assert again.trace.split("-")[2] == span_of(failed)


@pytest.mark.parametrize("name", ["traced.one", "traced.beside", "traced.bulk"])
def test_an_error_whose_text_raises_is_a_failure_as_without_traces(
    spans: Spans, monkeypatch: pytest.MonkeyPatch, name: str
):
    world = run(monkeypatch, name, 1, UNPRINTABLE)
    assert 1 in world.batches[0].offsets
    assert "Unprintable" in {span.status.description for span in spans.exported}


@pytest.mark.parametrize("flags", ["01", "00"])
def test_what_a_handler_publishes_carries_its_trace_on_unless_it_gives_one(
    spans: Spans, monkeypatch: pytest.MonkeyPatch, flags: str
):
    run(monkeypatch, "traced.publishes", 1, 2, flags=flags)
    carried, given = published
    (_, trace_id, span, sampled) = carried["traceparent"].decode().split("-")
    assert (carried["a"], trace_id, sampled) == (b"1", PRODUCER, flags)
    assert [span_of(each) for each in spans.exported[:1]] == ([span] if flags == "01" else [])
    assert given == {"traceparent": b"mine"}


def test_without_traces_what_a_handler_publishes_has_its_own_headers_alone(
    untraced: None, monkeypatch: pytest.MonkeyPatch
):
    run(monkeypatch, "traced.publishes", 1)
    assert published == [{"a": b"1"}]
