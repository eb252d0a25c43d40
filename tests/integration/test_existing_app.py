"""A Celery app of one's own, in a Django project and beside FastAPI: handlers beside plain tasks."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.processes import ROOT, Process, Stack, eventually
from tests.servers.process import free_port

SITE = ROOT / "tests" / "sites" / "django"


@pytest.fixture
def site(kafka: Any, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stack]:
    """The project, its database migrated; nothing of ours names a module of handlers: Django's apps are found."""
    environ = {
        "TEST_DATABASE": str(tmp_path / "site.sqlite"),
        "TEST_TOPIC": f"{topic_prefix}.orders",
        "DJANGO_SETTINGS_MODULE": "mysite.settings",
        "PYTHONPATH": os.pathsep.join((str(SITE), str(ROOT))),
    }
    with Stack(kafka.bootstrap_servers, redis_url, topic_prefix, tmp_path, "", **environ) as made:
        made.make_topics("orders")
        migrate = [sys.executable, "-m", "django", "migrate", "-v0"]
        subprocess.run(migrate, env=made.environ, cwd=SITE, check=True, timeout=60)
        yield made


def command(site: Stack, *words: str) -> Any:
    """`bridge -A mysite …` in the project's folder."""
    command = [sys.executable, "-m", "bridge", "-A", "mysite", *words]
    return site.start("command", *command, cwd=SITE, BRIDGE_HTTP_PORT=str(free_port()))


def call(site: Stack, expression: str) -> str:
    """What an expression gives in the project's own process, as its web pages would call it."""
    code = f"import django; django.setup(); from shop import tasks, handlers, models; print({expression})"
    done = subprocess.run(
        [sys.executable, "-c", code], env=site.environ, cwd=SITE, check=True, timeout=60, capture_output=True, text=True
    )
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.slow
def test_a_django_project_keeps_its_app_and_its_plain_tasks(site: Stack):
    celery = [sys.executable, "-m", "celery", "-A", "mysite", "worker", "-c", "1", "-l", "INFO", "--without-mingle"]
    worker: Process = site.start("worker", *celery, cwd=SITE, WORKER_METRICS_PORT=str(free_port()))
    worker.says(" ready.")
    bridge: Process = command(site)
    bridge.says("assigned: ")
    site.produce("orders", {"id": 1, "amount": 5}, {"id": 2, "amount": 0})
    (letter,) = site.dead("orders", 1)
    assert (letter.ours["reason"], letter.ours["handler"]) == ("permanent", "shop.handlers.charge")
    eventually(lambda: site.committed("orders") == 2, 20, "both are settled")
    assert call(site, "list(models.Payment.objects.values_list('order', flat=True))") == "[1]"
    # The project's own task: on its own queue, with its own result, whatever handlers are like.
    assert call(site, "tasks.count_payments.app.main") == "mysite"
    assert call(site, "tasks.count_payments.delay().get(timeout=20)") == "1"
    assert command(site, "audit", site.topic("orders")).ends(30) == 0
    assert command(site, "check").ends(30) == 0
    assert worker.terminate() == 0
    assert bridge.terminate() == 0


def test_an_api_sends_plain_tasks_and_handlers_to_the_queues_of_its_own_app(redis_url: str, topic_prefix: str):
    code = """
from fastapi.testclient import TestClient
from shop.api import api
with TestClient(api) as client:
    assert client.post("/reports/monday").status_code == 202
    assert client.post("/charges", json={"id": 1}).status_code == 202
"""
    site = ROOT / "tests" / "sites" / "fastapi"
    environ = {
        **os.environ,
        "CELERY_BROKER_URL": redis_url,
        "BRIDGE_GROUP": f"{topic_prefix}.group",
        "TEST_TOPIC": f"{topic_prefix}.orders",
        "PYTHONPATH": os.pathsep.join((str(site), str(ROOT))),
    }
    subprocess.run([sys.executable, "-c", code], env=environ, cwd=site, check=True, timeout=60)
    with redis.Redis.from_url(redis_url) as client:
        queued = {
            queue: [json.loads(raw)["headers"]["task"] for raw in client.lrange(queue, 0, -1)]
            for queue in ("celery", f"{topic_prefix}.group")
        }
    assert queued == {"celery": ["shop.jobs.send_report"], f"{topic_prefix}.group": ["shop.handlers.charge"]}
