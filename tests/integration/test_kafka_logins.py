"""The logins of a real Kafka, each for all processes and commands: password, token, function, certificate."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import KafkaUnavailable
from bridge.kafka.clients import admin_client, explain_error
from bridge.kafka.topic_admin import read_cluster
from tests.processes import ROOT, Stack, eventually
from tests.servers import kafka as kafka_server
from tests.servers.issuer import CLIENT, SECRET, issuer
from tests.servers.missing import need
from tests.servers.secured_kafka import PASSWORD, SecuredKafka

CERTIFICATE = "KAFKA_SSL_CERTIFICATE_LOCATION"

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


def run_json(stack: Stack, *command: str) -> Any:
    """Run a command with --json; on a busy machine lines of librdkafka may stand before its output."""
    lines = run(stack, *command, "--json").splitlines()
    begin = next(place for place, text in enumerate(lines) if text in ("[", "{", "[]"))
    return json.loads("\n".join(lines[begin:]))


def variables_of_page(heading: str) -> set[str]:
    """The variables that the page on logins sets under a heading."""
    _, _, text = (ROOT / "docs" / "how-to" / "kafka-logins.md").read_text().partition(f"## {heading}\n")
    return set(re.findall(r"(KAFKA_[A-Z_]+)=", text.partition("\n## ")[0]))


def work_with(stack: Stack, heading: str, login: Mapping[str, str]) -> None:
    """Let all processes and a command of each kind log in: consumers, producers and admin clients of each."""
    assert variables_of_page(heading) <= set(login)
    stack.environ |= login
    bridge, worker = stack.bridge(), stack.worker()
    stack.produce("orders", "first", {"dead": "no"}, "second")
    eventually(lambda: len(stack.done()) == 2, 40, "two records are done")
    stack.dead("orders", 1)
    run(stack, "deadletters", "record", "--once")
    assert [letter["status"] for letter in run_json(stack, "deadletters", "list")] == ["open"]
    assert "fault" not in {found["level"] for found in run_json(stack, "check")}
    status = run_json(stack, "status")
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
        CERTIFICATE: str(folder / f"{name}.crt"),
        "KAFKA_SSL_KEY_LOCATION": str(folder / f"{name}.key"),
    }


def test_all_processes_log_in_by_password(stack: Stack, secured: SecuredKafka):
    work_with(stack, "By password", {**secured.login("scram"), "KAFKA_SASL_PASSWORD": PASSWORD})


def test_all_processes_log_in_by_tokens_of_an_issuer(stack: Stack, secured: SecuredKafka):
    work_with(stack, "By tokens of an issuer", oidc(secured))


def test_all_processes_log_in_by_tokens_of_a_function(stack: Stack, secured: SecuredKafka, tmp_path: Path):
    work_with(stack, "By tokens of a function", own_function(secured, tmp_path))


def test_all_processes_log_in_by_certificate(stack: Stack, secured: SecuredKafka):
    work_with(stack, "By certificate", certificate(secured))


def test_processes_live_through_tokens_that_end_and_are_renewed(stack: Stack, secured: SecuredKafka, tmp_path: Path):
    """Kafka closes a connection whose token has ended. An idle producer and an admin client renew theirs, too."""
    # Kafka refuses to renew a connection within a second, as those with the rest of a shorter token must.
    secured.issuer.says(lives=12)
    try:
        stack.environ |= own_function(secured, tmp_path)
        bridge, worker = stack.bridge(), stack.worker()
        tokens = tmp_path / "tokens"
        # Its producer exists from here on, and nobody polls it until the next dead letter.
        stack.produce("orders", {"dead": "first"})
        stack.dead("orders", 1)
        begun = count_tokens(tokens, bridge.pid)
        eventually(
            lambda: count_tokens(tokens, bridge.pid) >= begun + 3, 60, "the bridge has lived through three tokens"
        )
        children = {int(pid) for pid in tokens.read_text().split()} - {bridge.pid}
        assert any(count_tokens(tokens, pid) >= 2 for pid in children), "an idle producer of a worker renewed its token"
        stack.produce("orders", "one", {"dead": "second"}, "two")
        eventually(lambda: len(stack.done()) == 2, 20, "two records are done")
        stack.dead("orders", 2)
        for process in (bridge, worker):
            for words in ("KAFKA_OAUTH_CB", "refuses"):
                assert words not in process.text
            assert process.terminate() == 0
    finally:
        secured.issuer.says()


def count_tokens(file: Path, pid: int) -> int:
    """How many tokens a process has asked for."""
    return file.read_text().split().count(str(pid))


def test_a_certificate_is_replaced_by_a_rolling_restart_that_loses_nothing(stack: Stack, secured: SecuredKafka):
    secured.authority.sign("rolled")
    stack.environ |= certificate(secured, "rolled")
    bridge, worker = stack.bridge(), stack.worker()
    produced = stack.produce("orders", *({"sleep": 0.05} for _ in range(40)))
    secured.authority.sign("rolled")
    second = stack.worker()
    assert worker.terminate() == 0
    produced += stack.produce("orders", *({"sleep": 0.05} for _ in range(40)))
    assert bridge.terminate() == 0
    other = stack.bridge()
    produced += stack.produce("orders", {"dead": "no"}, *({"sleep": 0.05} for _ in range(10)))
    (dead,) = (letter.origin for letter in stack.dead("orders", 1))
    eventually(lambda: len(stack.done()) >= len(produced) - 1, 40, "all are done")
    assert sorted([*stack.done(), dead]) == sorted(produced)
    for process in (other, second):
        assert process.terminate() == 0


@pytest.mark.parametrize(
    ("login", "words"),
    [
        (lambda kafka, _: certificate(kafka, "expired"), "refuses the certificate of this client, which has expired"),
        (
            lambda kafka, folder: {
                **own_function(kafka, folder),
                "KAFKA_SASL_OAUTHBEARER_CONFIG": "http://127.0.0.1:9",
            },
            "KAFKA_OAUTH_CB=tests.handlers.logins:token raised URLError",
        ),
    ],
    ids=["expired certificate", "function"],
)
def test_a_login_that_fails_is_said_by_the_check_and_by_the_bridge(
    stack: Stack, secured: SecuredKafka, tmp_path: Path, login: Any, words: str
):
    secured.authority.sign("expired", hours=-1)
    stack.environ |= login(secured, tmp_path)
    bridge = stack.bridge(wait=False)
    lines = run(stack, "check", code=1).splitlines()
    (fault,) = (line for line in lines if line.strip().startswith("fault"))
    assert words in fault
    bridge.says("The bridge waits for it")
    assert words in bridge.text
    eventually(lambda: words in bridge.get("/readyz")[1], 20, "/readyz says it")
    (silent,) = run_json(stack, "status")["problems"][:1]
    assert words in silent
    assert "KAFKA_BOOTSTRAP_SERVERS" not in silent
    assert bridge.terminate() == 0


def test_kafka_and_librdkafka_still_say_why_a_login_fails_in_the_words_that_are_explained(
    secured: SecuredKafka,
):
    def fail(login: Mapping[str, str]) -> str:
        properties = {name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in login.items()}
        said: list[str] = []
        admin = admin_client(properties, error_cb=lambda error: said.append(explain_error(error)))
        with pytest.raises(KafkaUnavailable):
            read_cluster(admin)
        return "\n".join(said)

    logins = {
        "refuses the user or the password": {**secured.login("scram"), "KAFKA_SASL_PASSWORD": "wrong"},
        "the certificate of Kafka is not trusted": {
            **certificate(secured),
            "KAFKA_SSL_CA_LOCATION": certificate(secured)[CERTIFICATE],
        },
        "the issuer does not respond: check KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": {
            **oidc(secured),
            "KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": "http://127.0.0.1:9/token",
        },
        "the issuer gives no token: check KAFKA_SASL_OAUTHBEARER_CLIENT_ID": {
            **oidc(secured),
            "KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET": "wrong",
        },
    }
    with ThreadPoolExecutor() as pool:
        for words, said in zip(logins, pool.map(fail, logins.values()), strict=True):
            assert words in said
