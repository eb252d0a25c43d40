"""A program replays a group by the API and sees how it ends; the documentation's own commands, run as they stand."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.delivery_checks import choose
from tests.desk_of_stack import recorder
from tests.processes import ROOT, Process, Served, Stack, eventually
from tests.servers.kafka import KafkaServer
from tests.servers.process import free_port

pytestmark = pytest.mark.timeout(300)
#: What the documentation has a shell do.
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / "reference" / "http-api.md").read_text(), re.M | re.S)


def made(stack: Stack, role: str) -> str:
    """A token that the command has made."""
    command = ("users", "tokens", "make", f"nightly as {role}", "--role", role)
    run: Process = stack.start("command", sys.executable, "-m", "bridge", "deadletters", *command)
    assert run.ends(120) == 0, run.text
    return next(line for line in run.text.splitlines() if line.startswith("bdl_"))


@pytest.fixture
def console(stack: Stack, desk_url: str, tmp_path: Path) -> tuple[str, Path]:
    """The address of a console over three recorded letters, and the file that mends their handler."""
    mended = tmp_path / "mended"
    stack.environ["BRIDGE_HTTP_PORT"] = "0"
    choose(stack, {"odd": {"commit": "completion"}})
    stack.make_topics("odd")
    stack.worker(wait=False)
    stack.bridge()
    stack.produce("odd", *[{"odd": {"mend": str(mended)}}] * 3, key=b"4711")
    stack.dead("odd", 3)
    recorder(stack)
    return serve(stack), mended


def serve(stack: Stack) -> str:
    """Start a console; the address of its API."""
    port = free_port()
    served: Served = stack.start(
        "console", sys.executable, "-m", "bridge", "deadletters", "serve", "--port", str(port), kind=Served
    )
    served.port = port
    eventually(lambda: served.get("/healthz")[0] == 200 or served.exit_code is not None, 60, "the console answers")
    assert served.exit_code is None, served.text
    return f"http://localhost:{port}/api/v1"


def asking(address: str, token: str) -> httpx2.Client:
    return httpx2.Client(base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=60)


def recorded(program: httpx2.Client, count: int) -> None:
    eventually(lambda: program.get("/letters/count?status=open").json()["count"] == count, 60, "letters are recorded")


def test_a_program_replays_a_group_and_sees_the_outcome_of_each_letter(stack: Stack, console: tuple[str, Path]):
    address, mended = console
    with asking(address, made(stack, "operator")) as program:
        recorded(program, 3)
        (group,) = program.get("/groups").json()["items"]
        assert group["open"] == 3
        wish = {"what": "replay", "letters": {"group": [group["id"]], "status": ["open"]}}
        plan = program.post("/plans", json=wish, headers={"idempotency-key": "plan"})
        assert (plan.status_code, plan.json()["preview"]["will"]) == (201, 3), plan.text
        path = f"/plans/{plan.json()['id']}"
        mended.touch()
        said: dict[str, Any] = {"idempotency-key": "apply", "if-match": plan.headers["etag"]}
        for _ in range(2):
            applied = program.post(f"{path}/apply", json={"why": "mended"}, headers=said)
            assert applied.json()["state"] == "applying", applied.text
        eventually(lambda: program.get(path).json()["is_over"], 90, "all that was sent has ended")
        assert program.get(path).json()["outcomes"] == {"done": 3}
        found = program.get(f"{path}/outcomes").json()["items"]
        assert [each["state"] for each in found] == ["done"] * 3
        assert all(each["sent_at"] <= each["ended_at"] for each in found)
        assert program.get("/letters/count?status=resolved").json() == {"count": 3, "exact": True, "among": None}
        deliveries = program.get(f"/letters/{found[0]['letter']}/elsewhere").json()["deliveries"]
        assert {each["handler"]: each["fate"] for each in deliveries}["odd"] == "done"
        assert program.get("/status").json()["halted"] == {}
        assert {each["by"] for each in program.get("/trail").json()["items"]} >= {"token nightly as operator"}


def ended(program: httpx2.Client, plan: httpx2.Response, key: str) -> dict[str, Any]:
    """A plan that was made is applied, twice under one key, and has ended."""
    assert plan.status_code == 201, plan.text
    path, said = f"/plans/{plan.json()['id']}", {"idempotency-key": key, "if-match": plan.headers["etag"]}
    for again in ("false", "true"):
        applied = program.post(f"{path}/apply", json={"why": "looked at"}, headers=said)
        assert applied.status_code == 200, applied.text
        assert applied.headers.get("idempotency-replayed", "false") == again
    eventually(lambda: program.get(path).json()["is_over"], 90, "all that was sent has ended")
    found: dict[str, Any] = program.get(path).json()
    return found


def test_a_program_patches_letters_sees_the_differences_and_they_run_with_the_values_that_it_wrote(
    stack: Stack, console: tuple[str, Path]
):
    address, mended = console
    with asking(address, made(stack, "operator")) as program:
        recorded(program, 3)
        one, *others = [each["id"] for each in program.get("/letters").json()["items"]]
        patch = [{"op": "remove", "path": "/odd/mend"}, {"op": "add", "path": "/by", "value": "the patch"}]
        wish = {"letters": {"id": others}, "patch": patch}
        plan = program.post("/plans/patch", json=wish, headers={"idempotency-key": "patch"})
        again = program.post("/plans/patch", json=wish, headers={"idempotency-key": "patch"})
        assert (again.json(), again.headers["idempotency-replayed"]) == (plan.json(), "true")
        differences = program.get(f"/plans/{plan.json()['id']}/differences").json()["items"]
        assert {each["letter"]: '+  "by": "the patch"' in each["difference"] for each in differences} == dict.fromkeys(
            others, True
        )
        # Nothing is sent before it is applied.
        assert stack.done("odd") == []
        assert ended(program, plan, "apply")["outcomes"] == {"done": 2}
        values = [run.value for run in stack.runs("odd") if run.outcome == "done"]
        assert values == [{"odd": {}, "by": "the patch"}] * 2
        assert program.get("/letters/count?status=resolved").json()["count"] == 2
        assert program.get(f"/letters/{one}").json()["status"] == "open"
        assert not mended.exists()


def test_a_program_copies_letters_to_a_topic_of_others_byte_for_byte_and_they_stay_open(
    stack: Stack, console: tuple[str, Path]
):
    address, _ = console
    stack.make_topics("copies")
    with asking(address, made(stack, "operator")) as program:
        recorded(program, 3)
        wish = {"letters": {"status": ["open"]}, "topic": stack.topic("copies"), "why": "to try the fix"}
        for topic, why in ((stack.topic("odd"), "odd"), (f"{stack.topic('odd')}.dlq", "dlq"), ("nowhere", "nowhere")):
            refused = program.post("/plans/copy", json={**wish, "topic": topic}, headers={"idempotency-key": why})
            assert (refused.status_code, why in refused.json()["detail"]) == (422, True), refused.text
        plan = program.post("/plans/copy", json=wish, headers={"idempotency-key": "copy"})
        assert ended(program, plan, "apply")["outcomes"] == {"done": 3}
        assert [(each.key(), each.value()) for each in stack.records("copies")] == [
            (each.key(), each.value()) for each in stack.records("odd")
        ]
        assert program.get("/letters/count?status=open").json()["count"] == 3


@pytest.fixture
def elsewhere(stack: Stack, own_kafka: KafkaServer) -> Iterator[Stack]:
    """Another Kafka, which whoever runs console and recorder has named."""
    stack.environ["TARGET_KAFKA_BOOTSTRAP_SERVERS"] = own_kafka.bootstrap_servers
    with Stack(own_kafka.bootstrap_servers, stack.broker, "there", stack.folder, "") as there:
        there.make_topics("copies")
        yield there


@pytest.mark.slow
def test_a_program_copies_letters_to_the_kafka_that_the_console_was_given(
    stack: Stack, elsewhere: Stack, console: tuple[str, Path]
):
    address, _ = console
    with asking(address, made(stack, "operator")) as program:
        recorded(program, 3)
        wish = {"letters": {"status": ["open"]}, "topic": elsewhere.topic("copies"), "kafka": "target"}
        plan = program.post("/plans/copy", json=wish, headers={"idempotency-key": "copy"})
        assert ended(program, plan, "apply")["outcomes"] == {"done": 3}
        assert len(elsewhere.records("copies")) == 3


def test_a_program_sends_a_range_of_a_topic_again_and_sees_how_each_record_ends(
    stack: Stack, console: tuple[str, Path]
):
    address, mended = console
    with asking(address, made(stack, "operator")) as program:
        recorded(program, 3)
        mended.touch()
        wish = {"topic": stack.topic("odd"), "from": "0", "to": "2", "handler": ["odd_too"], "why": "books were lost"}
        # What is done is not sent again, unless that is asked for.
        plan = program.post("/plans/redrive", json=wish, headers={"idempotency-key": "1"})
        assert (plan.status_code, plan.json()["preview"]["will"]) == (201, 0), plan.text
        plan = program.post("/plans/redrive", json={**wish, "again": True}, headers={"idempotency-key": "2"})
        assert plan.json()["preview"]["will"] == 2, plan.text
        before = len(stack.done("odd_too"))
        assert ended(program, plan, "apply")["outcomes"] == {"done": 2}
        assert (len(stack.done("odd_too")) - before, stack.done("odd")) == (2, [])
        found = program.get(f"/plans/{plan.json()['id']}/outcomes").json()["items"]
        assert [each["state"] for each in found] == ["done"] * 2


def test_a_program_halts_a_topic_and_lets_it_go_on(stack: Stack, console: tuple[str, Path]):
    address, _ = console
    topic = stack.topic("odd")
    with asking(address, made(stack, "operator")) as program, asking(address, made(stack, "viewer")) as viewer:
        wish = {"why": "the bank is down"}
        assert viewer.post(f"/topics/{topic}/halt", json=wish).status_code == 403
        halted = program.post(f"/topics/{topic}/halt", json=wish, headers={"idempotency-key": "1"})
        assert halted.json()["halted"] is True, halted.text
        assert viewer.get("/halts").json()["topics"][topic]["by"] == "token nightly as operator"
        resumed = program.post(f"/topics/{topic}/resume", json=wish, headers={"idempotency-key": "2"})
        assert resumed.json()["halted"] is False
        assert viewer.get("/halts").json() == {"topics": {}, "handlers": []}
        assert viewer.get("/policies/odd").json()["fault"] is None


@pytest.mark.slow
def test_while_kafka_is_frozen_and_sixty_wait_for_it_letters_are_listed_all_the_same(
    mortal_stack: Stack, mortal_kafka: KafkaServer
):
    stack = mortal_stack
    choose(stack, {"odd": {"commit": "completion"}})
    stack.environ["DEADLETTERS_DATABASE_URL"] = f"sqlite:///{stack.folder}/letters.db"
    stack.make_topics("odd")
    address, token = serve(stack), made(stack, "viewer")
    limits = httpx2.Limits(max_connections=70)
    headers = {"authorization": f"Bearer {token}"}
    with (
        httpx2.Client(base_url=address, headers=headers, timeout=200, limits=limits) as program,
        ThreadPoolExecutor(60) as threads,
    ):
        assert program.get(f"/find?q={stack.topic('odd')}-0-1").status_code == 200
        mortal_kafka.freeze()
        others = [threads.submit(program.get, f"/find?q={stack.topic('odd')}-0-1") for _ in range(60)]
        for path in ("/letters", "/groups", "/letters/count", "/plans", "/trail") * 3:
            assert program.get(path).status_code == 200
        assert sum(each.done() for each in others) < 60
        mortal_kafka.thaw()
        assert {each.result().status_code for each in others} == {200}


def test_the_commands_of_the_documentation_do_what_it_says(stack: Stack, console: tuple[str, Path]):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    address, mended = console
    token = made(stack, "operator")
    with asking(address, token) as program:
        recorded(program, 3)
        mended.touch()
        settings, *rest = COMMANDS
        assert "tokens make nightly --role operator" in settings
        script = "\n".join([f"set -e; DESK={address} TOKEN={token}", *(f"{each}\necho" for each in rest)])
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "/problems/" not in done.stdout
        eventually(lambda: program.get("/plans/1").json()["is_over"], 90, "all that was sent has ended")
        assert program.get("/plans/1").json()["outcomes"] == {"done": 3}
