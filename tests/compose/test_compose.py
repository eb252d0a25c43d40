"""`docker compose up` for real: the stack comes up, handles records, and buries what cannot be handled."""

import base64
import json
import re
import urllib.error
import urllib.request
from typing import Any

import httpx2
import pytest
import redis
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient

from tests.compose.conftest import SERVICES, Stack
from tests.processes import DeadLetter, eventually
from tests.quickstart import COMPOSE, take_steps

pytestmark = pytest.mark.compose
HANDLER = "examples.orders.handlers.charge"


def ask(url: str, credentials: tuple[str, str] | None = None) -> str:
    request = urllib.request.Request(url)
    if credentials:
        token = base64.b64encode(":".join(credentials).encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        body: bytes = answer.read()
    return body.decode()


def order(number: int, trouble: str = "") -> dict[str, Any]:
    return {"id": number, "customer": "ann@example.com", "amount": 9.5, "currency": "EUR", "trouble": trouble}


def produce(stack: Stack, value: dict[str, Any], **record: Any) -> Message:
    """Produce an order from outside of the stack, and return what the broker acknowledged."""
    acknowledged: list[Any] = []
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{stack.kafka_port}"})
    producer.produce(
        "orders",
        json.dumps(value).encode(),
        on_delivery=lambda error, message: acknowledged.append(error or message),
        **record,
    )
    assert producer.flush(30) == 0
    (record,) = acknowledged
    assert isinstance(record, Message), record
    return record


def coordinates(record: Message) -> str:
    return f"orders-{record.partition()}-{record.offset()}"


def identity(record: Message) -> str:
    return f"{coordinates(record)}:{HANDLER}"


def ends(stack: Stack, record: Message, state: str) -> None:
    """Wait until Flower's API has the record's delivery in this state."""
    url = f"http://127.0.0.1:{stack.flower_port}/api/tasks"

    def task_state() -> Any:
        return json.loads(ask(url, stack.credentials)).get(identity(record), {}).get("state")

    eventually(lambda: task_state() == state, 60, f"{identity(record)} ends as {state}")


def dead_letter(stack: Stack, record: Message) -> DeadLetter:
    """Wait for the dead letter of a record."""
    settings = {
        "bootstrap.servers": f"127.0.0.1:{stack.kafka_port}",
        "group.id": "reader",
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 1000,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["orders.dlq"])

    def look() -> DeadLetter | None:
        for found in consumer.consume(10, 0.5):
            if found.error() is None and (dead := DeadLetter(found)).origin == coordinates(record):
                return dead
        return None

    try:
        dead: DeadLetter = eventually(look, 60, f"the dead letter of {coordinates(record)}")
    finally:
        consumer.close()
    return dead


def test_the_stack_comes_up_healthy(stack):
    assert {service: stack.health(service) for service in SERVICES} == dict.fromkeys(SERVICES, "healthy")


def test_every_port_is_open_to_this_machine_alone(stack):
    published = [line for line in stack.compose("ps").splitlines() if "->" in line]
    assert published
    assert not [line for line in published if "0.0.0.0:" in line or ":::" in line]


def test_a_process_of_this_machine_reaches_the_servers_of_the_stack_as_the_readme_says(stack):
    with redis.Redis(port=stack.redis_port) as client:
        assert client.ping()
    admin = AdminClient({"bootstrap.servers": f"localhost:{stack.kafka_port}"})
    assert "orders" in admin.list_topics(timeout=10).topics


def test_no_process_of_ours_runs_as_root_or_can_write_its_root_file_system(stack):
    for service in ("worker", "bridge", "recorder", "console", "flower"):
        done = stack.shell(f"docker compose exec -T {service} sh -c 'id -u; touch /app/x /var/x'")
        assert done.stdout.split() == ["10001"]
        assert done.stderr.count("Read-only file system") == 2, done.stderr


def test_a_record_goes_through_the_bridge_and_the_worker(stack):
    ends(stack, produce(stack, order(1), key=b"customer-1"), "SUCCESS")


def test_a_record_that_fails_for_a_while_is_retried_until_it_is_done(stack):
    ends(stack, produce(stack, order(2, "bank away")), "SUCCESS")


def test_a_poisoned_record_lands_in_the_dead_letters_as_it_was_with_the_reason(stack):
    headers = [("trace", b"\x00\xff"), ("trace", b"2")]
    record = produce(stack, order(3, "declined"), key=b"customer-3", headers=headers)
    dead = dead_letter(stack, record)
    assert (dead.record.key(), json.loads(dead.record.value() or b"")) == (b"customer-3", order(3, "declined"))
    assert dead.theirs == headers
    assert (dead.ours["handler"], dead.ours["bridge_group"]) == (HANDLER, "bridge")
    assert (dead.ours["reason"], dead.ours["attempts"]) == ("permanent", "1")
    assert dead.ours["error_class"].endswith("CardDeclined")
    assert dead.ours["error_message"] == "insufficient funds"


def test_the_quickstart_goes_from_a_first_record_to_a_first_replay(stack):
    take_steps(stack.shell, COMPOSE)


def test_the_sidecars_pages_answer(stack):
    assert ask(f"http://127.0.0.1:{stack.bridge_port}/readyz") == "ok\n"
    assert "# TYPE" in ask(f"http://127.0.0.1:{stack.bridge_port}/metrics")
    assert "# TYPE" in ask(f"http://127.0.0.1:{stack.worker_port}/metrics")
    assert ask(f"http://127.0.0.1:{stack.recorder_port}/readyz") == "ok\n"


def browser_of(stack: Stack) -> httpx2.Client:
    """One that goes to the console."""
    address = f"http://localhost:{stack.console_port}"
    return httpx2.Client(base_url=address, follow_redirects=True, headers={"Origin": address}, timeout=20)


def test_a_dead_letter_is_in_the_console_for_who_is_signed_in(stack):
    record = produce(stack, order(6, "declined"), key=b"customer-6")
    with browser_of(stack) as browser:
        assert str(browser.get("/letters").url.path) == "/sign-in"
        answer = browser.post("/sign-in", data={"name": "admin", "password": stack.console_password})
        assert answer.status_code == 200, answer.text
        found = eventually(lambda: re.search(r'href="(/letters/\d+)', browser.get("/letters?key=customer-6").text), 60)
        letter = browser.get(found[1]).text
    assert coordinates(record) in letter
    assert "insufficient funds" in letter


def test_flower_answers_nobody_without_the_password(stack):
    for credentials in (None, ("operator", "wrong")):
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(f"http://127.0.0.1:{stack.flower_port}/api/tasks", credentials)
        # The error is the answer itself, and holds its socket.
        with refused.value as answer:
            assert answer.code == 401


def test_flower_lists_the_worker(stack):
    def workers() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            ask(f"http://127.0.0.1:{stack.flower_port}/api/workers?refresh=1", stack.credentials)
        )
        return found

    assert [name for name in eventually(workers) if name.startswith("celery@")]


def test_the_stack_goes_on_after_its_servers_are_restarted(stack):
    ends(stack, produce(stack, order(4)), "SUCCESS")
    stack.compose("restart", "kafka", "redis")
    stack.wait_until_healthy()
    ends(stack, produce(stack, order(5)), "SUCCESS")
