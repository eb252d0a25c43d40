"""A run of the demo: produces orders, watches their deliveries and prints the outcomes."""

import logging
import secrets
import signal
import sys
import time
from contextlib import ExitStack
from itertools import islice
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from bridge.demo.delivery_watch import PARKED, RETRYING, WAITING, DeliveryBoard, DeliveryWatch
from bridge.demo.demo_orders import HANDLERS, HANDLERS_MODULE, ORDER_KINDS, TOPIC, Order, generate_orders
from bridge.demo.demo_screen import DemoScreen, make_outcome_table
from bridge.demo.demo_servers import DESK, STOP_SIGNALS, DemoServers
from bridge.errors import EmbeddedServerFailed
from bridge.formats.text_forms import format_count
from bridge.kafka.clients import KafkaError, Producer, Record, producer_client

#: The exit codes.
OK, FAILED = 0, 1
#: The default number of orders with `--once`; enough for every kind of failure.
ORDERS_ONCE: Final = 100
#: The number of orders a second.
ORDERS_A_SECOND: Final = 10
#: Seconds without the end of any delivery after which the open ones are given up.
STALLED_AFTER: Final = 60.0
TURN: Final = 0.1


def run_demo(*, once: bool, records: int | None, seed: int | None) -> int:
    """Run the demo.

    Parameters:
        once: return when every record has ended; else run until Ctrl-C.
        records: how many orders to produce; `None` is 100 with `once`, else endless.
        seed: repeats the orders of an earlier run; `None` draws one.

    Returns:
        the exit code: 0, or 1 if a process failed or, with `once`, not every record has ended.
    """
    seed = secrets.randbelow(10_000) if seed is None else seed
    signals = _Signals()
    try:
        with DemoServers(hurry=lambda: signals.count > 1) as stack:
            logging.basicConfig(filename=stack.logs / "demo.log", level=logging.INFO)
            return Demo(stack, signals, seed, once, ORDERS_ONCE if once and records is None else records).run()
    except EmbeddedServerFailed as error:
        print(f"The demo cannot start: {error}", file=sys.stderr)
        return FAILED


class _Signals:
    """A counter of the signals that ask the demo to stop: it stops in order, whatever it is doing."""

    def __init__(self) -> None:
        self.count = 0
        for number in STOP_SIGNALS:
            signal.signal(number, self._received)

    def _received(self, number: int, frame: Any) -> None:
        self.count += 1


class Demo:
    """One run of the demo.

    Parameters:
        records: how many orders to produce, `None` for no end.
    """

    def __init__(self, stack: DemoServers, signals: _Signals, seed: int, once: bool, records: int | None) -> None:
        self._stack, self._signals, self._once = stack, signals, once
        self._console = Console()
        self._handlers = [f"{HANDLERS_MODULE}.{name}" for name in HANDLERS]
        self._board = DeliveryBoard(self._handlers)
        self._orders = islice(generate_orders(seed), records)
        self._title = f"bridge demo, seed {seed}"
        self._producer: Producer = producer_client({"bootstrap.servers": stack.bootstrap_servers})
        self._unacknowledged = 0
        self._produced_all = False
        self._told = False
        self._rejected: KafkaError | None = None

    def run(self) -> int:
        """Run to the end, print the outcomes, and return the exit code."""
        with ExitStack() as entered:
            # Asking for a topic creates it, so that the bridge finds it at once; the embedded Kafka has no other way.
            for topic in (TOPIC, f"{TOPIC}.replay"):
                self._producer.list_topics(topic, timeout=10)
            stack = self._stack
            watch = DeliveryWatch(self._board, stack.bootstrap_servers, stack.redis_url, stack.worker_port)
            entered.enter_context(watch)
            stack.start_processes(console=not self._once)
            hint = f"Logs: {stack.logs}" if self._once else _format_hint(stack)
            screen = entered.enter_context(DemoScreen(self._board, self._console, self._title, hint))
            fault = self._loop(watch, screen)
        if rows := self._board.rows(kind.name for kind in ORDER_KINDS):
            self._console.print(make_outcome_table(rows, self._handlers))
        if fault is None:
            return OK
        if not self._signals.count:
            self._stack.keep_logs()
            fault = f"{fault}\nLogs of worker and bridge: {self._stack.logs}"
        self._console.print(Text(fault, style="red"), soft_wrap=True)
        return FAILED

    def _loop(self, watch: DeliveryWatch, screen: DemoScreen) -> str | None:
        """Run until the demo ends; return the fault, if there is one."""
        started = time.monotonic()
        produced = 0
        open_before, moved = -1, started
        while True:
            due = int((time.monotonic() - started) * ORDERS_A_SECOND) + 1 - produced
            produced += self._produce(due)
            self._producer.poll(TURN)
            watch.update()
            screen.show()
            self._tell_of_console()
            open_now = self._open()
            if open_now != open_before or not self._produced_all:
                open_before, moved = open_now, time.monotonic()
            if self._signals.count:
                return (
                    f"Stopped: {format_count(open_now, 'delivery', 'were')} open." if self._once and open_now else None
                )
            if fault := self._fault(open_now, moved):
                return fault
            if self._once and self._produced_all and not open_now:
                return None

    def _tell_of_console(self) -> None:
        """Print the console's link as soon as there is one, above the live picture."""
        if not self._told and (link := self._stack.console_link()) is not None:
            self._told = True
            words = "Dead letters in a browser, with what to do with them (the link works once): "
            self._console.print(Text(words).append(link, style="bold"), soft_wrap=True)

    def _open(self) -> int:
        counts = self._board.counts()
        return counts[WAITING] + counts[RETRYING] + counts[PARKED] + self._unacknowledged * len(self._handlers)

    def _fault(self, open_now: int, moved: float) -> str | None:
        if name := self._stack.ended():
            return f"The {name} has ended. The end of its log:\n{self._stack.log_end(name)}"
        if self._rejected is not None:
            return f"The embedded Kafka did not take an order: {self._rejected.str()}."
        if self._once and time.monotonic() - moved > STALLED_AFTER:
            return f"{format_count(open_now, 'delivery', 'are')} open, and none has ended for {STALLED_AFTER:g} s."
        return None

    def _produce(self, count: int) -> int:
        orders = list(islice(self._orders, max(0, count)))
        self._produced_all = self._produced_all or len(orders) < count
        for order in orders:
            self._send(order)
        return len(orders)

    def _send(self, order: Order) -> None:
        def acknowledged(error: KafkaError | None, record: Record) -> None:
            self._unacknowledged -= 1
            if error is not None:
                self._rejected = error
                return
            place = (record.topic(), record.partition(), record.offset())
            self._board.produced(order.kind, *place)  # type: ignore[arg-type]

        self._unacknowledged += 1
        self._producer.produce(TOPIC, order.value, order.key, headers={"source": b"web-shop"}, on_delivery=acknowledged)


def _format_hint(stack: DemoServers) -> str:
    """Return what the user can do, the most important first, as a narrow terminal cuts the end."""
    if not DESK:
        return f"Logs: {stack.logs}   Ctrl-C ends it"
    return f"Ctrl-C ends it   Dead letters: {stack.bridge} deadletters groups   Logs beside it"
