"""Letters are mended: edited, patched, sent back by themselves once a version mends them, copied to another Kafka."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.delivery_checks import command, json_in, json_of
from tests.processes import Process, Stack, eventually
from tests.servers import kafka as kafka_server
from tests.servers.kafka import KafkaServer
from tests.servers.missing import need
from tests.servers.process import free_port

#: Each command is a process, which takes seconds to start on a busy machine.
pytestmark = pytest.mark.timeout(300)

CHARGE = "tests.handlers.mended.charge"
SECRET = "s3cret-of-the-sandbox"


@pytest.fixture
def shop(stack: Stack, desk_url: str) -> Stack:
    """A bridge, a worker of version 1 in which what is bad dies, and the recorder."""
    stack.environ |= {
        "HANDLERS": "tests.handlers.mended",
        "KAFKA_HANDLERS_VERSION": "1",
    }
    stack.make_topics("orders")
    stack.bridge()
    recorder: Process = stack.start("recorder", sys.executable, "-m", "bridge", "deadletters", "record")
    assert recorder.exit_code is None
    return stack


def listed(stack: Stack, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json_list(stack, "deadletters", "list", "--handler", CHARGE, *words)
    return found


def json_list(stack: Stack, *words: str) -> Any:
    printed = command(stack, *words, "--json")
    return json_in(printed)


def recorded(stack: Stack, count: int) -> list[int]:
    """Wait until so many letters are recorded; their ids."""
    eventually(lambda: len(listed(stack)) == count, 60, f"{count} letters")
    return sorted(each["id"] for each in listed(stack))


def done(stack: Stack) -> list[int]:
    return sorted(run.value["amount"] for run in stack.runs("charge") if run.outcome == "done")


def test_a_letter_is_edited_and_resolved_and_what_its_handler_does_not_take_is_refused(shop: Stack):
    shop.worker()
    shop.produce("orders", {"amount": "much"}, key=b"k")
    (letter,) = recorded(shop, 1)
    refused = command(shop, "deadletters", "edit", str(letter), "--value", '{"amount": "more"}', "--yes", code=1)
    assert "amount" in refused
    assert "more" not in refused
    assert not shop.has_topic("orders.replay") or shop.records("orders.replay") == []
    found = json_of(shop, "deadletters", "edit", str(letter), "--value", '{"amount": 5}', "--yes", "--wait")
    assert (found["state"], found["outcomes"]) == ("done", {"done": 1})
    assert done(shop) == [5]
    assert [each["status"] for each in listed(shop)] == ["resolved"]


@pytest.mark.slow
def test_a_letter_that_dies_again_has_the_value_that_was_sent_and_keeps_the_one_before(shop: Stack):
    shop.worker()
    shop.produce("orders", {"amount": "much"})
    (letter,) = recorded(shop, 1)
    value = '{"amount": 7, "bad": true}'
    words = ("deadletters", "edit", str(letter), "--value", value, "--yes", "--wait")
    assert json_of(shop, *words, code=3)["outcomes"] == {"dead": 1}
    shown = json_of(shop, "deadletters", "show", str(letter))
    assert shown["status"] == "open"
    assert shown["value"] == value
    assert [(each["mended"], each["value"]) for each in shown["history"]] == [(True, '{"amount": "much"}')]
    assert [(each["by"] != "", each["value"]) for each in shown["edits"]] == [(True, value)]
    page = command(shop, "deadletters", "show", str(letter))
    assert '-  "amount": "much"' in page
    assert '+  "amount": 7' in page


@pytest.mark.slow
def test_a_patch_mends_a_group_and_says_why_some_stay(shop: Stack):
    shop.worker()
    shop.produce("orders", {"amount": "much"}, {"amount": "more"}, {"amount": None, "sure": 1}, b"no json")
    recorded(shop, 4)
    patch = '[{"op": "test", "path": "/sure", "value": 1}, {"op": "replace", "path": "/amount", "value": 3}]'
    found = json_of(shop, "deadletters", "replay", "--handler", CHARGE, "--patch", patch, "--yes", "--wait")
    assert found["outcomes"] == {"done": 1, "skipped": 3}
    told = found["counts"]["edits"]
    assert {name: told[name] for name in ("changed", "no_json", "not_applied")} == {
        "changed": 1,
        "no_json": 1,
        "not_applied": 2,
    }
    assert done(shop) == [3]


@pytest.mark.slow
def test_what_would_be_taken_now_is_told_before_it_is_sent(shop: Stack):
    shop.worker()
    shop.produce("orders", {"amount": "much"}, {"amount": 1, "bad": True})
    recorded(shop, 2)
    found = json_of(shop, "deadletters", "check", "--handler", CHARGE, code=3)
    assert (found["letters"], found["valid"], found["invalid"]) == (2, 1, 1)


@pytest.mark.slow
def test_a_group_goes_back_by_itself_once_the_version_is_there_that_mends_it(shop: Stack):
    worker = shop.worker()
    shop.produce("orders", *[{"amount": at, "bad": True} for at in range(4)])
    recorded(shop, 4)
    (group,) = json_list(shop, "deadletters", "groups")
    command(shop, "deadletters", "fixed", str(group["id"]), "2")
    worker.terminate()
    shop.worker(KAFKA_HANDLERS_VERSION="2")
    eventually(lambda: {each["status"] for each in listed(shop)} == {"resolved"}, 60, "all are resolved")
    assert done(shop) == [0, 1, 2, 3]
    (plan,) = json_list(shop, "deadletters", "plans")
    assert (plan["by"], plan["outcomes"]) == ("fixed in 2", {"done": 4})


@pytest.mark.slow
def test_a_group_that_fails_in_that_version_all_the_same_opens_again_and_the_rest_stays(shop: Stack):
    worker = shop.worker(TEST_BROKEN="1,2")
    shop.produce("orders", *[{"amount": at, "bad": True} for at in range(4)])
    recorded(shop, 4)
    (group,) = json_list(shop, "deadletters", "groups")
    command(shop, "deadletters", "fixed", str(group["id"]), "2")
    worker.terminate()
    shop.worker(KAFKA_HANDLERS_VERSION="2", TEST_BROKEN="1,2")
    regressed = lambda: json_list(shop, "deadletters", "groups")[0]["regressed_at"]  # noqa: E731
    eventually(regressed, 60, "the group says that it is not mended")
    (group,) = json_list(shop, "deadletters", "groups")
    assert group["fixed_in"] is None
    eventually(lambda: {each["status"] for each in listed(shop)} == {"open"}, 60)
    # One more run: that of the canary's first wave.
    assert len([run for run in shop.runs("charge") if run.outcome == "begun"]) == 5


@pytest.mark.slow
def test_copies_go_to_another_kafka_and_nothing_changes_here(shop: Stack, own_kafka: KafkaServer):
    shop.worker()
    (place,) = shop.produce("orders", {"amount": "much"}, key=b"k", headers=[("trace", b"1")])
    (letter,) = recorded(shop, 1)
    to = ("--to-kafka", own_kafka.bootstrap_servers)
    words = ("deadletters", "replay", str(letter), "--to-topic")
    assert "make it first" in command(shop, *words, "copies", *to, "--yes", code=1)
    own_kafka.create_topics("copies")
    assert json_of(shop, *words, "copies", *to, "--yes", "--wait")["outcomes"] == {"done": 1}
    with Stack(own_kafka.bootstrap_servers, shop.broker, "x", shop.folder, "") as other:
        other.topic = lambda name: name  # type: ignore[method-assign]
        (copied,) = eventually(lambda: other.records("copies"), 60)
    assert (copied.key(), copied.value()) == (b"k", b'{"amount": "much"}')
    headers = dict(copied.headers() or ())
    assert headers["trace"] == b"1"
    assert headers["copy_of"] == f"{place}:{CHARGE}".encode()
    assert set(headers) == {"trace", "copy_of", "copy_at", "copy_by"}
    assert [each["status"] for each in listed(shop)] == ["open"]


@pytest.mark.slow
def test_copies_go_to_a_kafka_that_asks_for_a_password_which_stands_in_the_environment_or_a_file_alone(shop: Stack):
    need(kafka_server.missing())
    shop.worker()
    shop.produce("orders", {"amount": "much"}, key=b"k")
    (letter,) = recorded(shop, 1)
    with guarded() as other:
        other.create_topics("copies")
        address = f"127.0.0.1:{other.behind}"
        words = ("deadletters", "replay", str(letter), "--to-topic", "copies", "--yes", "--wait", "--to-kafka")
        said = {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SASL_MECHANISM": "PLAIN", "SASL_USERNAME": "me"}
        assert SECRET not in command(shop, *words, address, code=2)
        file = shop.folder / "target.properties"
        lines = {"bootstrap.servers": address} | {name.lower().replace("_", "."): is_ for name, is_ in said.items()}
        file.write_text("".join(f"{name}={is_}\n" for name, is_ in {**lines, "sasl.password": SECRET}.items()))
        assert json_of(shop, *words, str(file))["outcomes"] == {"done": 1}
        shop.environ |= {f"TARGET_KAFKA_{name}": is_ for name, is_ in {**said, "SASL_PASSWORD": SECRET}.items()}
        assert json_of(shop, *words, address)["outcomes"] == {"done": 1}
        with Stack(other.bootstrap_servers, shop.broker, "x", shop.folder, "") as there:
            there.topic = lambda name: name  # type: ignore[method-assign]
            eventually(lambda: [each.key() for each in there.records("copies")] == [b"k", b"k"], 60)
    plans = json_list(shop, "deadletters", "plans")
    assert SECRET not in json.dumps(plans)
    assert not [process.log for process in shop._processes if SECRET in process.text]
    assert [each["status"] for each in listed(shop)] == ["open"]


@contextmanager
def guarded() -> Iterator[KafkaServer]:
    """A Kafka with a second listener, at `behind`, for who knows the password."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:SASL_PLAINTEXT",
        "listener.name.proxied.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.proxied.plain.sasl.jaas.config": f'{login} user_me="{SECRET}";',
    }
    port = free_port()
    server = KafkaServer(settings=settings, behind=port)
    # No proxy stands before it.
    server.behind_port = port
    with server:
        yield server


@pytest.mark.slow
def test_a_copy_into_a_topic_of_ours_is_refused_unless_forced(shop: Stack):
    shop.worker()
    shop.produce("orders", {"amount": "much"})
    (letter,) = recorded(shop, 1)
    words = ("deadletters", "replay", str(letter), "--yes", "--to-topic")
    for name in ("orders", "orders.dlq"):
        assert "--force" in command(shop, *words, shop.topic(name), code=1)
