"""The logins of a real Kafka, each for all processes and commands: password, token, function, certificate."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Stack, eventually
from tests.servers import kafka as kafka_server
from tests.servers.issuer import CLIENT, SECRET, issuer
from tests.servers.missing import need
from tests.servers.secured_kafka import PASSWORD, SecuredKafka

pytestmark = [pytest.mark.servers, pytest.mark.slow]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    need(kafka_server.missing())
    folder = tmp_path_factory.mktemp("secured")
    with issuer(folder) as made, SecuredKafka(made, folder) as kafka:
        kafka.authority.sign("client")
        yield kafka


@pytest.fixture
def stack(secured: SecuredKafka, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stack]:
    """A stack whose own producer and reader need no login, unlike its processes."""
    with Stack(secured.bootstrap_servers, redis_url, topic_prefix, tmp_path, "tests.handlers.simple") as made:
        made.make_topics("orders")
        made.environ["DEADLETTERS_DATABASE_URL"] = f"sqlite:///{tmp_path}/letters.db"
        yield made


def run(stack: Stack, *command: str, code: int = 0, **environ: Any) -> str:
    done = stack.start("command", sys.executable, "-m", "bridge", *command, **environ)
    assert done.ends(60) == code, done.text
    assert PASSWORD not in done.text
    assert SECRET not in done.text
    text: str = done.text
    return text


def work_with(stack: Stack, login: Mapping[str, str]) -> None:
    """Let all processes and a command of each kind log in: consumers, producers and admin clients of each."""
    stack.environ |= login
    bridge, worker = stack.bridge(), stack.worker()
    stack.produce("orders", "first", {"dead": "no"}, "second")
    eventually(lambda: len(stack.done()) == 2, 40, "two records are done")
    stack.dead("orders", 1)
    run(stack, "deadletters", "record", "--once")
    assert [letter["status"] for letter in json.loads(run(stack, "deadletters", "list", "--json"))] == ["open"]
    assert "fault" not in {found["level"] for found in json.loads(run(stack, "check", "--json"))}
    status = json.loads(run(stack, "status", "--json"))
    assert (status["unanswered"], status["unknown"]) == ([], [])
    run(stack, "halt", stack.topic("orders"), "--why", "the decision is a record")
    for process in (bridge, worker):
        assert process.terminate() == 0
        assert PASSWORD not in process.text
        assert SECRET not in process.text


def oidc(kafka: SecuredKafka) -> Mapping[str, str]:
    return {
        **kafka.login("oauth"),
        "KAFKA_SASL_OAUTHBEARER_METHOD": "oidc",
        "KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": f"{kafka.issuer.url}/token",
        "KAFKA_SASL_OAUTHBEARER_CLIENT_ID": CLIENT,
        "KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET": SECRET,
    }


def own_function(kafka: SecuredKafka, folder: Path) -> Mapping[str, str]:
    return {
        **kafka.login("oauth"),
        "KAFKA_OAUTH_CB": "tests.handlers.logins:token",
        "KAFKA_SASL_OAUTHBEARER_CONFIG": kafka.issuer.url,
        "TEST_ISSUER_LOGIN": f"{CLIENT}:{SECRET}",
        "TEST_TOKENS": str(folder / "tokens"),
    }


def certificate(kafka: SecuredKafka, name: str = "client") -> Mapping[str, str]:
    folder = kafka.authority.folder
    return {
        **kafka.login("mtls"),
        "KAFKA_SSL_CERTIFICATE_LOCATION": str(folder / f"{name}.crt"),
        "KAFKA_SSL_KEY_LOCATION": str(folder / f"{name}.key"),
    }


def test_all_processes_log_in_by_password(stack: Stack, secured: SecuredKafka):
    work_with(stack, {**secured.login("scram"), "KAFKA_SASL_PASSWORD": PASSWORD})


def test_all_processes_log_in_by_tokens_of_an_issuer(stack: Stack, secured: SecuredKafka):
    work_with(stack, oidc(secured))


def test_all_processes_log_in_by_tokens_of_a_function(stack: Stack, secured: SecuredKafka, tmp_path: Path):
    work_with(stack, own_function(secured, tmp_path))


def test_all_processes_log_in_by_certificate(stack: Stack, secured: SecuredKafka):
    work_with(stack, certificate(secured))
