"""A person is erased: what was planted is in no file that the certificate does not name, and nothing is unaccounted."""

import base64
import gzip
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.delivery_checks import audit, choose, command, json_in
from tests.processes import ROOT, Stack, eventually
from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.redis import missing as redis_missing

COMPLETION = {"commit": "completion"}
#: What names the person: the key, and texts of the value.
KEY = "person-80231"
NAME = "Zephyrine Quastel"
MAIL = "zq@example.org"
PLANTED = (KEY, NAME, MAIL)


@pytest.fixture
def soon_kafka() -> Iterator[KafkaServer]:
    """A Kafka that closes and deletes its files soon."""
    soon = {
        "log.retention.check.interval.ms": "500",
        "log.segment.delete.delay.ms": "100",
        "log.initial.task.delay.ms": "100",
    }
    with KafkaServer(settings=soon) as server:
        yield server


@pytest.fixture
def erasing(soon_kafka: KafkaServer, topic_prefix: str, tmp_path: Path) -> Iterator[tuple[Stack, RedisServer]]:
    if why := redis_missing():
        pytest.skip(why)
    with (
        RedisServer(save="3600 1") as redis,
        Stack(soon_kafka.bootstrap_servers, redis.url, topic_prefix, tmp_path, "tests.handlers.fates") as stack,
    ):
        yield stack, redis


def person(**said: Any) -> dict[str, Any]:
    return {**said, "customer": {"id": 80231, "name": NAME, "mail": MAIL}}


def find_planted(folder: Path, *texts: str) -> dict[str, set[str]]:
    """Return the planted texts that files have, by file: as they are, or within base64."""
    found: dict[str, set[str]] = {}
    for file in folder.rglob("*"):
        try:
            raw = file.read_bytes()
        except OSError:
            continue
        raw = gzip.decompress(raw) if file.suffix == ".gz" else raw
        for text in texts:
            if any(re.search(form, raw) for form in _forms(text)):
                found.setdefault(str(file.relative_to(folder)), set()).add(text)
    return found


def _forms(text: str) -> Iterator[bytes]:
    plain = text.encode()
    yield re.escape(plain)
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + plain).decode()
        # Without what its neighbours decide.
        yield re.escape(coded[4 if shift else 0 : -4].encode())


def certificate(printed: str) -> dict[str, dict[str, Any]]:
    return {each["name"] if each["place"] == "topic" else each["place"]: each for each in json_in(printed)["findings"]}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_was_planted_is_gone_from_all_files_but_those_that_the_certificate_names(
    erasing: tuple[Stack, RedisServer], soon_kafka: KafkaServer, tmp_path: Path, kind: str, request: Any
):
    stack, redis = erasing
    data = tmp_path / "data"
    data.mkdir()
    url, folder = f"sqlite:///{data}/letters.db", data
    if kind == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url, folder = server.new_database(), server.folder / "data" / "base"
    stack.environ["DEADLETTERS_DATABASE_URL"] = url
    choose(stack, {"orders": COMPLETION, "modelled": COMPLETION})
    stack.make_topics("orders", "modelled", config={"segment.ms": "1000"})
    stack.make_topics("orders.dlq", "modelled.dlq", config={"segment.ms": "1000", "retention.ms": "-1"})
    stack.bridge()
    worker = stack.worker()
    stack.produce("orders", person(dead=True), key=KEY.encode())
    stack.dead("orders", 1)
    stack.produce("orders", 1, {"dead": True}, key=b"other")
    stack.dead("orders", 2)
    command(stack, "deadletters", "record", "--once")
    # Its error quotes the value.
    stack.produce("modelled", person(id=NAME), key=KEY.encode())
    stack.dead("modelled", 1)
    command(stack, "deadletters", "record", "--once")
    listed = json_in(command(stack, "deadletters", "list", "--json"))
    assert len(listed) == 3, listed
    (orders,) = [each["id"] for each in listed if each["key"] == KEY and "orders" in each["topic"]]
    command(stack, "deadletters", "note", str(orders), "--text", f"{NAME} called, write to {MAIL}")
    worker.terminate()
    stack.produce("orders", *[person(number=number) for number in range(3)], key=KEY.encode())
    stack.produce("orders", 2, 3, key=b"other")
    eventually(lambda: stack.waiting() == 5, 60, "all are queued")
    assert find_planted(redis.folder, NAME)
    assert find_planted(soon_kafka.folder / "data", NAME)

    who = ("--key", KEY, "--field", "value.customer.id=80231", "--text", NAME, "--text", MAIL)
    words = ("erase", *who, "--why", f"request 17 of {NAME}", "--json")
    planned = command(stack, *words, "--plan")
    found = certificate(planned)
    assert (found["database"]["found"], found["notes"]["found"], found["queue"]["found"]) == (2, 1, 3), planned
    assert NAME not in planned.replace(f"request 17 of {NAME}", "")
    assert len(json_in(planned)["unended"]) == 5
    assert "have not ended" in command(stack, *words, "--yes", code=1)

    printed = command(stack, *words, "--yes", "--open", "discard", code=None)
    found = certificate(printed)
    assert not any(text in printed for text in PLANTED), printed
    assert (found["database"]["erased"], found["notes"]["erased"], found["queue"]["erased"]) == (2, 1, 3), printed
    for topic in ("orders", "modelled"):
        source, letters = found[f"topic {stack.topic(topic)}"], found[f"topic {stack.topic(topic)}.dlq (dead letters)"]
        assert source["found"] == (4 if topic == "orders" else 1)
        assert source["erased"] == 0
        assert "it is not the bridge's topic" in source["remains"]
        assert (letters["found"], letters["erased"]) == (1, 1), printed
    assert audit(stack, "orders", code=None)["unaccounted"] == 0
    assert stack.waiting() == 2

    assert find_planted(redis.folder, *PLANTED) == {}
    assert find_planted(folder, *PLANTED) == {}
    # Exactly the topics of which the certificate says that something remains, and for how long.
    named = {name.split()[1] for name, each in found.items() if name.startswith("topic ") and each["remains"]}
    planted = ("orders", "orders.dlq", "modelled", "modelled.dlq")
    assert find_topics(soon_kafka) == named == {stack.topic(topic) for topic in planted}
    # The file of a partition is deleted once it is closed, by the next record, and all its records are deleted.
    time.sleep(1.5)
    stack.worker()
    stack.produce("orders", {"dead": True}, key=b"other")
    stack.produce("modelled", {"id": "no"}, key=b"other")
    eventually(
        lambda: find_topics(soon_kafka) == named - {stack.topic("modelled.dlq")}, 60, "the closed file is deleted"
    )
    # The audit log has who and when, and nothing of the person.
    again = command(stack, *words, "--plan")
    assert len(json_in(again)["earlier"]) == 1
    assert not any(text in again.replace(f"request 17 of {NAME}", "") for text in PLANTED)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_parked_delivery_is_discarded_and_its_record_is_deleted_once_bridges_have_passed_it(stack: Stack):
    stack.environ["DEADLETTERS_DATABASE_URL"] = f"sqlite:///{stack.folder}/letters.db"
    choose(stack, {"orders": COMPLETION}, kafka_park_after=2)
    stack.make_topics("orders")
    stack.bridge()
    stack.worker()
    stack.produce("orders", person(later=99, pause=8), key=KEY.encode())
    eventually(lambda: audit(stack)["parked"] == 1, 60, "it is parked")
    (retry,) = [name for name in list_topics(stack) if ".retry." in name]
    command(stack, "deadletters", "migrate")

    words = ("erase", "--key", KEY, "--why", "request 17", "--yes", "--json")
    assert "(parked)" in command(stack, *words, code=1)
    printed = command(stack, *words, "--open", "discard", code=3)
    found = certificate(printed)[f"topic {retry} (retry)"]
    assert (found["found"], found["erased"], found["run_again"]) == (1, 0, True), printed
    assert "run the command again later" in found["remains"]
    assert json_in(printed)["audit"][stack.topic("orders")]["unaccounted"] == 0
    # It is due, and no handler runs.
    runs = len(stack.runs("orders"))
    eventually(lambda: stack.committed(retry.removeprefix(stack.topic(""))) == 1, 90, "the bridge has passed it")
    printed = command(stack, *words)
    found = certificate(printed)[f"topic {retry} (retry)"]
    assert (found["found"], found["erased"]) == (1, 1), printed
    assert certificate(command(stack, *words, "--plan"))[f"topic {retry} (retry)"]["found"] == 0
    assert len(stack.runs("orders")) == runs
    assert (audit(stack)["discarded"], audit(stack)["parked"]) == (1, 0)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_queued_retry_is_removed_and_its_record_is_settled_though_no_worker_runs(stack: Stack):
    stack.environ["DEADLETTERS_DATABASE_URL"] = f"sqlite:///{stack.folder}/letters.db"
    choose(stack, {"orders": COMPLETION}, kafka_park_after=2)
    stack.make_topics("orders")
    stack.bridge()
    worker = stack.worker()
    stack.produce("orders", person(later=99, pause=5), key=KEY.encode())
    eventually(lambda: audit(stack)["parked"] == 1, 60, "it is parked")
    worker.terminate()
    (retry,) = [name for name in list_topics(stack) if ".retry." in name]
    command(stack, "deadletters", "migrate")
    eventually(lambda: stack.waiting() == 1, 60, "it is due and queued")

    words = ("erase", "--key", KEY, "--why", "request 17", "--yes", "--json")
    found = certificate(command(stack, *words, "--open", "discard", code=None))
    assert (found["queue"]["found"], found["queue"]["erased"]) == (1, 1)
    assert stack.waiting() == 0
    eventually(lambda: stack.committed(retry.removeprefix(stack.topic(""))) == 1, 60, "the bridge has passed it")
    again = certificate(command(stack, *words))[f"topic {retry} (retry)"]
    assert again["found"] == again["erased"]
    counted = audit(stack)
    assert (counted["discarded"], counted["parked"], counted["handed"]) == (1, 0, 0)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_delivery_that_is_queued_after_the_search_stays_and_is_handled(stack: Stack):
    stack.environ["DEADLETTERS_DATABASE_URL"] = f"sqlite:///{stack.folder}/letters.db"
    choose(stack, {"orders": COMPLETION})
    stack.make_topics("orders")
    stack.bridge()
    worker = stack.worker()
    stack.produce("orders", person(number=0), key=KEY.encode())
    eventually(lambda: audit(stack)["done"] == 1, 60, "it is done")
    worker.terminate()
    command(stack, "deadletters", "migrate")

    ours, theirs = pty.openpty()
    words = (sys.executable, "-m", "bridge", "erase", "--key", KEY, "--why", "request 17")
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=stack.environ, cwd=ROOT) as erasing:
        os.close(theirs)
        _read_until(ours, "for good?")
        # A person thinks before she confirms.
        stack.produce("orders", person(number=1), key=KEY.encode())
        eventually(lambda: stack.waiting() == 1, 60, "it is queued")
        os.write(ours, b"y\n")
        printed = _read_until(ours, "run the command again")
        assert erasing.wait(60) == 3, printed
    os.close(ours)
    assert stack.waiting() == 1
    stack.worker()
    eventually(lambda: audit(stack, code=None)["done"] == 2, 60, "its handler runs")


def _read_until(terminal: int, text: str) -> str:
    """What a command printed on a terminal, until it says something, or ends."""
    said = b""
    while text.encode() not in said:
        try:
            said += os.read(terminal, 4096)
        except OSError:
            raise AssertionError(f"it did not say {text!r}: {said.decode(errors='replace')}") from None
    return said.decode(errors="replace")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_halted_key_and_a_replaying_letter_refuse_and_nothing_is_erased(stack: Stack, tmp_path: Path):
    stack.environ["DEADLETTERS_DATABASE_URL"] = f"sqlite:///{stack.folder}/letters.db"
    choose(stack, {"keyed": {**COMPLETION, "order": "key"}})
    stack.make_topics("keyed")
    stack.bridge()
    worker = stack.worker()
    stack.produce("keyed", person(dead=True), key=KEY.encode())
    stack.dead("keyed", 1)
    command(stack, "deadletters", "record", "--once")
    words = ("erase", "--key", KEY, "--why", "request 17", "--yes", "--open", "discard")
    of_key = (stack.topic("keyed"), "--handler", "keyed", "--key", KEY)
    command(stack, "halt", *of_key, "--why", "she called")
    assert "is halted" in command(stack, *words, code=1)
    command(stack, "resume", *of_key, "--why", "done")
    worker.terminate()
    command(stack, "deadletters", "replay", "--yes")
    assert "being replayed" in command(stack, *words, code=1)
    assert json_in(command(stack, "deadletters", "list", "--json"))[0]["status"] == "replaying"


def list_topics(stack: Stack) -> list[str]:
    """The topics of a stack."""
    with stack._reader("nobody") as reader:
        return [name for name in reader.list_topics(timeout=10).topics if name.startswith(stack.topic(""))]


def find_topics(kafka: KafkaServer) -> set[str]:
    """The topics whose files have planted texts."""
    return {name.split("/")[0].rpartition("-")[0] for name in find_planted(kafka.folder / "data", *PLANTED)}
