"""The stack of docker-compose.yml, and the image that it builds, on a real Docker engine."""

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pytest_docker_tools.wrappers import container as docker_tools_container

from tests.servers.missing import need
from tests.servers.process import free_port

ROOT = Path(__file__).parents[2]
IMAGE = "celery-kafka-bridge"
SERVICES = ("kafka", "redis", "postgres", "worker", "bridge", "recorder", "console", "flower")

# It takes /.dockerenv for a sign that this is a container beside those it starts; ports are published here.
docker_tools_container.tests_inside_container = lambda: False


def compose_command() -> list[str] | None:
    """`docker compose`, or `docker-compose`, or None if there is neither."""
    if shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


def missing() -> str | None:
    """Why nothing can be started here, or None."""
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        return "no Docker engine answers (see DOCKER_HOST)"
    return None if compose_command() else "neither `docker compose` nor `docker-compose` is here"


@dataclass
class Stack:
    """One project of Compose, with ports and volumes of its own."""

    name: str = field(default_factory=lambda: f"bridge{uuid.uuid4().hex[:8]}")
    kafka_port: int = field(default_factory=free_port)
    redis_port: int = field(default_factory=free_port)
    bridge_port: int = field(default_factory=free_port)
    worker_port: int = field(default_factory=free_port)
    flower_port: int = field(default_factory=free_port)
    recorder_port: int = field(default_factory=free_port)
    console_port: int = field(default_factory=free_port)
    credentials: tuple[str, str] = ("operator", "secret")
    console_password: str = "a console of our own"
    postgres_password: str = field(default_factory=lambda: uuid.uuid4().hex)

    def compose(self, *arguments: str, within: float = 600) -> str:
        """Run a command of Compose and return its output; the test fails with it if the command does."""
        done = self._run([*(compose_command() or []), "--project-name", self.name, *arguments], within)
        if done.returncode:
            pytest.fail(f"compose {' '.join(arguments)}:\n{done.stdout}{done.stderr}", pytrace=False)
        return done.stdout

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script of `docker compose …` for this project."""
        script = script.replace("docker compose", " ".join(compose_command() or []))
        return self._run(["bash", "-c", f"export COMPOSE_PROJECT_NAME={self.name}\n{script}"], 120)

    def health(self, service: str) -> str:
        """What Docker says of a service: starting, healthy, unhealthy, or "" if it has no container."""
        container = self.compose("ps", "-q", service).strip()
        if not container:
            return ""
        done = self._run(["docker", "inspect", "--format", "{{.State.Health.Status}}", container], 30)
        return done.stdout.strip()

    def wait_until_healthy(self, services: Sequence[str] = SERVICES, within: float = 240) -> None:
        deadline = time.monotonic() + within
        while (states := {service: self.health(service) for service in services}) and set(states.values()) != {
            "healthy"
        }:
            if time.monotonic() > deadline:
                pytest.fail(f"{states}\n{self.compose('logs', '--tail=60')}", pytrace=False)
            time.sleep(1)

    def _run(self, command: list[str], within: float) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "KAFKA_HOST_PORT": str(self.kafka_port),
            "REDIS_HOST_PORT": str(self.redis_port),
            "BRIDGE_HTTP_HOST_PORT": str(self.bridge_port),
            "WORKER_METRICS_HOST_PORT": str(self.worker_port),
            "FLOWER_HOST_PORT": str(self.flower_port),
            "DEADLETTERS_HTTP_HOST_PORT": str(self.recorder_port),
            "CONSOLE_HOST_PORT": str(self.console_port),
            "FLOWER_BASIC_AUTH": ":".join(self.credentials),
            "CONSOLE_PASSWORD": self.console_password,
            "POSTGRES_PASSWORD": self.postgres_password,
        }
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=within)


@pytest.fixture(scope="session")
def image() -> str:
    """The project's image, built from its Dockerfile."""
    need(missing())
    done = subprocess.run(["docker", "build", "--tag", IMAGE, "."], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(f"docker build:\n{done.stdout[-5000:]}{done.stderr[-5000:]}", pytrace=False)
    return IMAGE


@pytest.fixture(scope="session")
def stack(image: str) -> Iterator[Stack]:
    """The stack, up and healthy; gone with its volumes afterwards."""
    stack = Stack()
    try:
        stack.compose("up", "--detach")
        stack.wait_until_healthy()
        yield stack
    finally:
        stack.compose("down", "--volumes", "--timeout", "10")
