"""What leaves with a line of the log: which delivery it is about, and never what is in its record."""

import json
import logging
from collections.abc import Callable, Iterator

import pytest

from bridge.formats.delivery import Dead, Delivery, Message
from bridge.formats.failure import Failure
from bridge.formats.log_format import OneLine, json_formatter
from tasks import logs
from tasks.execution import delivery_log
from tasks.logs import LINES, WINDOW, LogLineLimiter, WithDelivery, set_logged_delivery

SECRET = b"4111 1111 1111 1111"
DELIVERY = Delivery(Message("orders", 3, 1234, key=SECRET, value=SECRET, headers=(("a", SECRET),), attempt=2), "charge")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(delivery_log, "_sums", LogLineLimiter(later=lambda seconds, act: None))
    yield
    set_logged_delivery(None)


def line(**extra: object) -> logging.LogRecord:
    record = logging.getLogger("shop").makeRecord(
        "shop", logging.INFO, "f", 1, "charged %s", ("it",), None, extra=extra
    )
    assert WithDelivery().filter(record)
    return record


def test_a_line_says_which_delivery_it_is_about():
    set_logged_delivery(DELIVERY)
    shown = json.loads(json_formatter().format(line(amount=7)))
    assert shown.pop("time")
    assert shown.pop("pid")
    assert shown == {
        "level": "INFO",
        "logger": "shop",
        "message": "charged it",
        "amount": 7,
        "delivery": "orders-3-1234:charge",
        "handler": "charge",
        "topic": "orders",
        "partition": 3,
        "offset": 1234,
        "attempt": 2,
        "trace_id": "",
    }


def test_a_field_of_the_handlers_own_stays_as_it_is():
    set_logged_delivery(DELIVERY)
    assert vars(line(topic="weather"))["topic"] == "weather"


def test_a_record_is_one_line_of_text_whatever_an_error_says_and_its_traceback_comes_below():
    try:
        raise ValueError("no\n[ERROR] all is lost\x1b[31m")
    except ValueError as error:
        record = logging.getLogger("shop").makeRecord(
            "shop", logging.ERROR, "f", 1, "failed: %s", (error,), (ValueError, error, error.__traceback__)
        )
    first, *below = OneLine(logging.Formatter("[%(levelname)s] %(message)s")).format(record).split("\n")
    assert first == r"[ERROR] failed: no\n[ERROR] all is lost\x1b[31m"
    assert below[0].startswith("Traceback")
    assert "\x1b" not in "".join(below)
    assert record.args, "others see the record as it was"


def test_the_lines_of_a_worker_are_of_one_line_each(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WORKER_LOG_FORMAT", raising=False)
    logger, handler = logging.Logger("dressed"), logging.StreamHandler()
    logger.addHandler(handler)
    logs.dress_logger(logger)
    logs.dress_logger(logger)
    record = logging.getLogger("shop").makeRecord("shop", logging.INFO, "f", 1, "a\nb", (), None)
    assert handler.format(record) == r"a\nb"


def test_outside_of_a_delivery_the_field_is_empty():
    assert vars(line())["delivery"] == ""
    assert "topic" not in vars(line())


def test_json_shows_no_object_that_is_none_of_its_own():
    assert SECRET.decode() not in json_formatter().format(line(message_=DELIVERY.message, raw=SECRET))


def test_a_repr_holds_nothing_of_the_record():
    assert "4111" not in repr(DELIVERY) + repr(DELIVERY.message)
    assert "orders" in repr(DELIVERY)


def _raise() -> BaseException:
    secret = SECRET
    try:
        raise PermissionError(f"refused, {len(secret)} characters")
    except PermissionError as error:
        return error


@pytest.mark.parametrize(
    "tell",
    [
        lambda failure: delivery_log.log_dead(DELIVERY, Dead("exhausted", failure), _raise()),
        lambda failure: delivery_log.log_retry(DELIVERY, 4.0, failure),
        lambda failure: delivery_log.log_halt(DELIVERY, str(failure), ""),
        lambda failure: delivery_log.log_unpublished(
            DELIVERY, Dead("exhausted", failure), 2, OSError("Kafka"), _raise()
        ),
        lambda failure: delivery_log.log_skipped(DELIVERY),
    ],
    ids=["dead", "again", "halted", "unpublished", "skipped"],
)
def test_the_arguments_of_a_line_are_words_and_numbers(
    tell: Callable[[Failure], None], caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO):
        tell(Failure.from_error(_raise()))
    (record,) = caplog.records
    assert record.args
    assert all(type(argument) in (str, int, float) for argument in record.args)
    assert "4111" not in record.getMessage()
    assert "orders-3-1234:charge" in record.getMessage()


def test_a_dead_delivery_is_logged_as_the_error_that_killed_it(caplog: pytest.LogCaptureFixture):
    error = _raise()
    delivery_log.log_dead(DELIVERY, Dead("exhausted", Failure.from_error(error)), error)
    (record,) = caplog.records
    assert record.exc_info is not None
    kind, found, traceback = record.exc_info
    assert (kind, found) == (PermissionError, error)
    assert traceback is not None
    assert traceback.tb_frame.f_code.co_name == "_raise"


def test_thousands_that_end_alike_are_summed_up(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    timers: list[Callable[[], None]] = []
    sums = LogLineLimiter(clock=lambda: now[0], later=lambda seconds, act: timers.append(act))
    monkeypatch.setattr(delivery_log, "_sums", sums)
    failure = Failure.from_error(_raise())
    for _ in range(3_000):
        delivery_log.log_dead(DELIVERY, Dead("exhausted", failure))
    delivery_log.log_dead(DELIVERY, Dead("permanent", failure))
    assert len(caplog.records) == LINES + 1
    (timer,) = timers
    timer()
    assert len(caplog.records) == LINES + 1
    now[0] = WINDOW
    timer()
    last = caplog.records[-1].getMessage()
    assert last == f"{3_000 - LINES} more deliveries of charge are dead (exhausted): PermissionError"
    delivery_log.log_dead(DELIVERY, Dead("exhausted", failure))
    assert "orders-3-1234:charge is dead" in caplog.records[-1].getMessage()


def test_what_was_counted_is_said_when_the_process_ends(caplog: pytest.LogCaptureFixture):
    for _ in range(LINES + 5):
        delivery_log.log_dead(DELIVERY, Dead("exhausted", Failure.from_error(_raise())))
    delivery_log.flush_summaries()
    delivery_log.flush_summaries()
    assert sum("5 more deliveries" in record.getMessage() for record in caplog.records) == 1
    assert logs.LINES == LINES
