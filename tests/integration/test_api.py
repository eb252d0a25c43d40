"""A program replays a group by the API and sees how it ends; the documentation's own commands, run as they stand."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.desks import recorder
from tests.processes import ROOT, Process, Served, Stack, eventually
from tests.promises import choose
from tests.servers.process import free_port

pytestmark = pytest.mark.timeout(300)
#: What the documentation has a shell do.
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / "api.md").read_text(), re.M | re.S)


def made(stack: Stack, role: str) -> str:
    """A token that the command has made."""
    command = ("users", "tokens", "make", f"nightly as {role}", "--role", role)
    run: Process = stack.start("command", sys.executable, "-m", "bridge", "deadletters", *command)
    assert run.ends(120) == 0, run.text
    return next(line for line in run.text.splitlines() if line.startswith("bdl_"))


@pytest.fixture
def console(stack: Stack, tmp_path: Path) -> tuple[str, Path]:
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
    port = free_port()
    served: Served = stack.start(
        "console", sys.executable, "-m", "bridge", "deadletters", "serve", "--port", str(port), kind=Served
    )
    served.port = port
    eventually(lambda: served.get("/healthz")[0] == 200 or served.exit_code is not None, 60, "the console answers")
    assert served.exit_code is None, served.text
    return f"http://localhost:{port}/api/v1", mended


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
        assert program.get("/letters/count?status=resolved").json() == {"count": 3, "exact": True}
        deliveries = program.get(f"/letters/{found[0]['letter']}/elsewhere").json()["deliveries"]
        assert {each["handler"]: each["fate"] for each in deliveries}["odd"] == "done"
        assert program.get("/status").json()["halted"] == {}
        assert {each["by"] for each in program.get("/trail").json()["items"]} >= {"token nightly as operator"}


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
        assert viewer.get("/halts").json() == {"topics": {}}
        assert viewer.get("/policies/odd").json()["fault"] is None


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
