"""The quickstart of the README does what it says, word by word, in an empty folder."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, Process, Served, Stack, eventually
from tests.servers.kafka import KafkaServer
from tests.servers.process import free_port

README = (ROOT / "README.md").read_text()
KEPT = ("PATH", "HOME", "KAFKA_BOOTSTRAP_SERVERS", "CELERY_BROKER_URL")


def block(words: str) -> str:
    """The one code block of the README that has these words."""
    (found,) = [text for text in re.findall(r"```\w*\n(.*?)```", README, re.DOTALL) if words in text]
    return str(found)


@pytest.mark.slow
def test_the_quickstart_handles_its_first_record(redis_url: str, tmp_path: Path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "handlers.py").write_text(block("# shop/handlers.py"))
    (tmp_path / "celeryconfig.py").write_text(block('imports = ("shop.handlers",)'))
    export, *commands = block("celery -A tasks worker").strip().splitlines()
    assert commands == ["bridge check", "celery -A tasks worker -l INFO"]
    assert block("python -m bridge").strip().splitlines() == [export, "python -m bridge"]
    with (
        KafkaServer(auto_create_topics=True) as kafka,
        Stack(kafka.bootstrap_servers, redis_url, "", tmp_path, "") as stack,
    ):
        # The variables that the README sets, with the addresses of this test's servers, and none of a test's own.
        assert re.findall(r"(\w+)=", export) == ["KAFKA_BOOTSTRAP_SERVERS", "CELERY_BROKER_URL", "BRIDGE_GROUP"]
        stack.environ = {name: value for name, value in stack.environ.items() if name in KEPT}
        stack.environ["BRIDGE_GROUP"] = export.partition("BRIDGE_GROUP=")[2]
        stack.environ |= {"BRIDGE_HTTP_PORT": str(free_port()), "WORKER_METRICS_PORT": str(free_port())}
        python = Path(sys.executable).parent
        check = stack.start("check", str(python / "bridge"), "check", cwd=tmp_path)
        assert check.ends() == 0, check.text
        assert f"settings are read from {tmp_path / 'celeryconfig.py'}" in check.text
        worker = stack.start("worker", str(python / "celery"), *commands[1].split()[1:], cwd=tmp_path, kind=Process)
        bridge = stack.start("bridge", sys.executable, "-m", "bridge", cwd=tmp_path, kind=Served)
        worker.says("ready.")

        script = block("on_delivery=report").replace("localhost:9092", kafka.bootstrap_servers)
        script = script.replace("python -c", f"{sys.executable} -c")
        sent = subprocess.run(script, shell=True, capture_output=True, text=True, timeout=60, check=True)
        coordinates = sent.stdout.strip()
        assert coordinates == "orders-0-0", sent
        bridge.says("ready: ")  # one partition, or two with that of the replay topic
        worker.says("charged 5 to 4242")

        find, audit = block("bridge find orders-0-0").strip().splitlines()
        eventually(lambda: "done" in ran(stack, tmp_path, find), 30, "bridge find says that it is done")
        assert "orders" in ran(stack, tmp_path, audit)

        refused = subprocess.run(
            script.replace('\\"amount\\": 5', '\\"amount\\": 0'), shell=True, capture_output=True, text=True, timeout=60
        )
        assert refused.stdout.strip() == "orders-0-1", refused
        eventually(lambda: "dead" in ran(stack, tmp_path, "bridge find orders-0-1"), 30, "the record is a dead letter")
        record, groups, replay = block("bridge deadletters record").strip().splitlines()
        ran(stack, tmp_path, record)
        assert "shop.handlers.charge" in ran(stack, tmp_path, groups)
        printed = ran(stack, tmp_path, replay)
        assert block("to be replayed with the new value") in printed
        assert worker.count("charged 5 to 4242") == 2
        assert "done" in ran(stack, tmp_path, "bridge find orders-0-1")
        assert "nothing is unaccounted for" in ran(stack, tmp_path, audit)


def ran(stack: Stack, folder: Path, line: str) -> str:
    """What a command of the README prints; it must end with 0."""
    command = stack.start("command", str(Path(sys.executable).parent / "bridge"), *shlex.split(line)[1:], cwd=folder)
    assert command.ends() == 0, command.text
    return str(command.text)
