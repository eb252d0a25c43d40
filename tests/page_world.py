"""The world in which a reader types the commands of a page: servers, an app, its records, and a terminal.

A `PageWorld` has Kafka, Redis, a bridge, a worker, a recorder and the two handlers that the pages name. A `Terminal`
runs the lines of one page as they stand, in Bash.
"""

import json
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import termios
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from tests.processes import TIMES, Process, Served, Stack, eventually
from tests.servers.kafka import KafkaServer, jars
from tests.servers.process import free_port
from tests.servers.receiver import HERE, Receiver

#: The handlers that the pages name. The one of the shop fails while its bank is down.
APP: Final = {
    "celeryconfig.py": 'imports = ("shop.handlers", "orders.handlers")\n',
    "shop/bank.py": """\
from pathlib import Path


class BankError(Exception):
    pass


def charge(order):
    if Path("bank-is-down").exists() and order["amount"] > 100:
        raise BankError("the bank does not take amounts above 100 EUR")
""",
    "shop/handlers.py": """\
from shop.bank import BankError, charge as charge_at_bank
from tasks import Limit, handler

#: Far above what comes: it limits nothing here.
BANK = Limit("bank", per_second=10_000)


@handler("orders", name="shop.handlers.charge", autoretry_for=(BankError,), max_retries=3, limit=BANK)
def charge(order):
    charge_at_bank(order)
""",
    "orders/handlers.py": """\
from tasks import handler


@handler("orders", "invoices", name="orders.handlers.charge")
def charge(order):
    pass
""",
}
#: The tools of Apache Kafka that the pages call, as its jars have them.
KAFKA_TOOLS: Final = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}
#: The page of a process that answers 200 once it serves, and the variable with its port, by how its line begins.
#: The console has no such variable: it is on port 8093.
SERVING: Final = (
    (re.compile(r"bridge (-A \w+ )?run\b"), "BRIDGE_HTTP_PORT", "/readyz"),
    (re.compile(r"celery -A \w+ worker\b"), "WORKER_METRICS_PORT", "/metrics"),
    (re.compile(r"bridge deadletters record(?! --)"), "DEADLETTERS_HTTP_PORT", "/readyz"),
    (re.compile(r"bridge deadletters serve\b"), "", "/healthz"),
)
#: With its blank, which click writes by itself: an answer before that is shown in front of it.
CONFIRM: Final = "[y/N]: "
#: How long a command may take: many run at once on a small machine.
COMMAND_SECONDS: Final = 120
PASSWORD: Final = "seven wet towels on a line"


class PageWorld:
    """Servers, an app in a folder, its processes, and what happened there before the reader came.

    Attributes:
        answers: what is typed at a question, by its last words; all but a confirmation are secrets.
    """

    def __init__(self, kafka: KafkaServer, redis_url: str, folder: Path) -> None:
        self.kafka, self.folder = kafka, folder
        self.database_url = f"sqlite:///{folder / 'letters.db'}"
        for name, text in APP.items():
            self.write_file(name, text)
        self.receiver = Receiver(folder)
        self.stack = Stack(kafka.bootstrap_servers, redis_url, "", folder, "")
        for name in ("HANDLERS", "BRIDGE_GROUP", "TEST_PREFIX", *TIMES):
            del self.stack.environ[name]
        self.stack.environ |= {
            "PATH": os.pathsep.join((str(self._write_tools()), str(Path(sys.executable).parent), os.environ["PATH"])),
            "DEADLETTERS_DATABASE_URL": self.database_url,
            "DEADLETTERS_WEBHOOK_NETWORKS": HERE,
            "KAFKA_HANDLERS_VERSION": "1.4.1",
            "NEW": PASSWORD[::-1],
            "COLUMNS": "80",
            "TERM": "dumb",
        }
        self.answers = {
            "Password:": PASSWORD,
            "Repeat for confirmation:": PASSWORD,
            CONFIRM: "y",
            "Address:": self.receiver.url,
        }
        self._running: dict[str, Process] = {}

    def _write_tools(self) -> Path:
        """Return a folder with Kafka's own commands."""
        tools = self.folder / "bin"
        tools.mkdir()
        for name, entry in KAFKA_TOOLS.items():
            (tools / name).write_text(f"#!/bin/sh\nexec java -XX:TieredStopAtLevel=1 -cp '{jars()}/*' {entry} \"$@\"\n")
            (tools / name).chmod(0o755)
        return tools

    def write_file(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def start(self) -> None:
        """Start all, and let happen what the pages tell of: a handled record, dead letters, another consumer."""
        self.receiver.start()
        self.kafka.create_topics("orders", "invoices", "copies", "orders.copies")
        self.run_processes()
        self.produce({"amount": 5}, key="4711")
        self.commit_as_consumer("billing")
        self.let_letters_die()

    def close(self) -> None:
        self.stack.__exit__(None, None, None)
        self.receiver.stop()

    # Processes

    def run_processes(self) -> None:
        """Start what of the bridge, the worker and the recorder does not run."""
        lines = {
            "worker": "celery -A tasks worker -c 2 --without-mingle",
            "bridge": "bridge run",
            "recorder": "bridge deadletters record",
        }
        for name in [name for name in lines if name not in self._running]:
            self._running[name] = self.serve(lines[name])

    def serve(self, line: str, before: str = "") -> Served:
        """Start what does not end by itself, on a port of its own.

        Parameters:
            before: lines of Bash that go before it.
        """
        variable, path = find_page(line)
        port = free_port() if variable else 8093
        environ = {name: "0" for _, name, _ in SERVING if name} | ({variable: str(port)} if variable else {})
        process: Served = self.stack.start(
            "served", "bash", "-c", f"{before}exec {line}", cwd=self.folder, kind=Served, **environ
        )
        process.port = port

        def answers() -> bool:
            assert process.exit_code is None, process.text
            return process.get(path)[0] == 200

        eventually(answers, 60, f"`{line}` serves")
        return process

    def stop_bridge(self) -> None:
        self._stop("bridge")

    def _stop(self, name: str) -> None:
        if process := self._running.pop(name, None):
            assert process.terminate() == 0, process.text

    # What happened

    def produce(self, *values: object, key: str) -> None:
        """Produce records of the topic `orders`."""
        for value in values:
            self.stack.producer.produce("orders", json.dumps(value).encode(), key=key)
        assert self.stack.producer.flush(30) == 0

    def commit_as_consumer(self, group: str) -> None:
        """Commit as the consumer from which a team migrates, and stop it."""
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": group})
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        consumer.close()

    def let_letters_die(self) -> None:
        """Take the bank down, and wait for five more open letters."""
        (self.folder / "bank-is-down").touch()
        wanted = self._count_open() + 5
        for number in range(5):
            self.produce({"card": "4242", "amount": 250}, key=f"customer-{number}")
        eventually(lambda: self._count_open() >= wanted, 60, f"{wanted} open letters")

    def bring_bank_back(self) -> None:
        (self.folder / "bank-is-down").unlink(missing_ok=True)

    def _count_open(self) -> int:
        with closing(sqlite3.connect(self.folder / "letters.db")) as database:
            return int(database.execute("SELECT count(*) FROM letters WHERE status = 'open'").fetchone()[0])

    def queue_deliveries(self) -> None:
        """Let three deliveries wait in a queue without a worker."""
        self._stop("worker")
        self.produce({"amount": 5}, {"amount": 5}, {"amount": 5}, key="4711")
        eventually(lambda: self.stack.redis().llen("bridge") > 0, 30, "deliveries wait")


def find_page(line: str) -> tuple[str, str]:
    """Return the variable of the port and the page of what a line serves; empty if it ends by itself."""
    return next(((variable, path) for begins, variable, path in SERVING if begins.match(line)), ("", ""))


def echoes(terminal: int) -> bool:
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


@dataclass
class Terminal:
    """A reader's terminal: it keeps what was exported, and shows what a command prints."""

    world: PageWorld
    exported: str = ""
    serving: list[Process] = field(default_factory=list)

    def run(self, line: str, code: int = 0) -> str:
        """Run a line, answer its questions, and return what the terminal shows.

        It must exit with this code in time, or serve.
        """
        if any(find_page(line)):
            self.serving.append(process := self.world.serve(line, self.exported))
            return process.text
        exited, shown = self._run_in_bash(f"set -o pipefail\n{self.exported}{line}\n")
        assert exited == code, f"{line}\n\nexit code {exited}:\n{shown}"
        if line.startswith("export "):
            self.exported += f"{line}\n"
        return shown

    def close(self) -> None:
        """Press Ctrl-C where something serves: it ends in order."""
        while self.serving:
            process = self.serving.pop()
            # The console ends by the signal itself, once it has shut down.
            assert process.terminate() in (0, -signal.SIGTERM), process.text

    def _run_in_bash(self, script: str) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.world.folder,
            env=self.world.stack.environ,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        try:
            shown = self._converse(ours)
            return process.wait(10), shown
        finally:
            os.close(ours)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _converse(self, terminal: int) -> str:
        """Return all that is shown until the other end closes; type the answer to each question."""
        shown, answered, deadline = "", 0, time.monotonic() + COMMAND_SECONDS
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.05)[0]:
                try:
                    shown += os.read(terminal, 65_536).decode(errors="replace").replace("\r", "")
                except OSError:  # The other end is closed.
                    return shown
            for question, answer in self.world.answers.items():
                # What is typed before the echo of a secret is off is thrown away.
                is_asked = shown[answered:].endswith((question, f"{question} "))
                if is_asked and (question == CONFIRM or not echoes(terminal)):
                    answered = len(shown)
                    os.write(terminal, f"{answer}\n".encode())
        raise AssertionError(f"it still runs after {COMMAND_SECONDS} s:\n{shown}")
