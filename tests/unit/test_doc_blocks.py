"""Every code block and every command of the tutorials and of the how-to pages runs, or is checked, as it stands."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import jsonpatch
import pytest
from celery import Celery
from celery.bin.celery import celery as celery_command

from bridge.kafka.clients import property_fault
from bridge.settings.setting_defaults import EnvironmentSettings, FileSettings
from tasks import Message
from tasks.declaration import app_setup
from tasks.declaration.celery_defaults import OWN_DEFAULTS
from tasks.testing import FakeService, crash_everywhere, outcome, outcome_of
from tests.doc_blocks import ROOT, Block, find_block, find_unknown_words, parse_bridge, read_blocks

DOCS: Final = ROOT / "docs"
PAGES: Final = sorted(page for kind in ("tutorials", "how-to", "runbooks") for page in DOCS.glob(f"{kind}/*.md"))
README: Final = read_blocks(ROOT / "README.md")
BLOCKS: Final = [block for page in PAGES for block in read_blocks(page)]
PYTHON: Final = [block for block in BLOCKS if block.language == "python"]
SHELL: Final = [block for block in BLOCKS if block.language in ("console", "sh")]
#: Words of the Python blocks that do not run alone, and why.
NOT_ALONE: Final = {
    "HTTPServer((": "it serves without end: tests/desk/test_webhooks_page_of_docs.py runs it",
    "# mysite/settings.py": "a piece of a file: the test of Django below runs it",
    "django": "it needs the project: the test of Django below runs it",
    "shop.celery import app": "a module of the service: the test of FastAPI below runs it",
    "import shop.celery": "a module of the service: the test of FastAPI below runs it",
    "FastAPI": "a module of the service: the test of FastAPI below runs it",
    "sentry_sdk.init": "it patches Celery in the whole process: tests/integration/test_sentry.py runs it",
    "tasks.use(app)": "it makes the app of the process: the tests of Django and FastAPI, and test_readme_blocks.py",
}
#: Programs of others, which are not checked, and why.
OF_OTHERS: Final = {
    **{f"kafka-{name}.sh": "of Apache Kafka" for name in ("configs", "consumer-groups", "topics", "transactions")},
    **dict.fromkeys(
        (
            "chronyc",
            "cp",
            "curl",
            "echo",
            "grep",
            "printf",
            "sort",
            "systemctl",
            "systemd-run",
            "timedatectl",
            "uniq",
            "useradd",
        ),
        "of the system",
    ),
    "helm": "of Helm",
    "kcat": "of librdkafka",
    "kubectl": "of Kubernetes",
    "py-spy": "a tool to look into a process",
    "redis-cli": "of Redis",
}
#: What is set in the environment and is none of the settings' own fields.
ELSEWHERE: Final = re.compile(
    r"HANDLERS|CELERY_\w+|KAFKA_BOOTSTRAP_SERVERS|BRIDGE_LOG_(LEVEL|FORMAT)|TARGET_KAFKA_\w*|SSL_CERT_FILE|NEW|OTEL_\w+"
)


def is_alone(block: Block) -> bool:
    return not any(words in block.text for words in NOT_ALONE)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[Block], dict[str, Any]]]:
    """Run a Python block in an app of its own, beside the handler of the README; give what it defines."""
    app = Celery("page", set_as_current=False)
    app.conf.update(OWN_DEFAULTS)
    monkeypatch.setattr(app_setup, "_used", [app])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "handlers.py").write_text(find_block(README, "# shop/handlers.py").text)

    def run(block: Block) -> dict[str, Any]:
        module: dict[str, Any] = {"__name__": "page.handlers"}
        exec(compile(block.text, str(block), "exec", dont_inherit=True), module)
        return module

    yield run
    app.close()
    for name in [name for name in sys.modules if name.split(".")[0] == "shop"]:
        del sys.modules[name]


def find_page_block(words: str) -> Block:
    return find_block(BLOCKS, words)


@pytest.mark.parametrize("block", [block for block in PYTHON if is_alone(block)], ids=str)
def test_a_python_block_runs_and_its_tests_pass(
    block: Block, run: Callable[[Block], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
):
    module = run(block)
    for name in [name for name in module if name.startswith("test_")]:
        wants = module[name].__code__.co_varnames[: module[name].__code__.co_argcount]
        with monkeypatch.context() as patched:
            module[name](*[patched for _ in wants])


def test_every_reason_not_to_run_a_block_is_needed():
    assert [words for words in NOT_ALONE if not any(words in block.text for block in PYTHON)] == []
    commands = " ".join(line for block in SHELL for line in block.commands())
    assert [name for name in OF_OTHERS if name not in commands] == []


#: Words of a block, a record's value for its handler `charge`, and what becomes of it.
OUTCOMES: Final[list[tuple[str, Any, str]]] = [
    ("handler, Message, DeadLetter, RetryLater", {"amount": 5}, "done"),
    ("order: Order | None", {"id": 1, "amount": 5}, "done"),
    ("order: Order | None", None, "done"),
    ("order: Order | None", {"id": 1}, "dead: undecodable"),
    ("def to_today", {"id": 1, "cents": 500}, "done"),
    ("def to_today", {"id": 1, "amount": 5}, "done"),
    ("def to_today", {"id": 1}, "dead: undecodable"),
    ("breaker=bank", {"amount": 5}, "done"),
]


@pytest.mark.parametrize(("words", "value", "expected"), OUTCOMES)
def test_a_handler_of_a_page_does_what_its_page_says(
    words: str, value: Any, expected: str, run: Callable[[Block], dict[str, Any]]
):
    assert str(outcome(run(find_page_block(words))["charge"], value)) == expected


def test_the_policy_by_message_answers_each_status(run: Callable[[Block], dict[str, Any]]):
    module = run(find_page_block("def by_status"))
    charge = module["charge"]

    def answered(status: int, **headers: str) -> Exception:
        error: Exception = module["HTTPError"]("https://bank.example.com", status, "", {**headers}, None)
        return error

    assert str(outcome_of(charge, answered(429))) == "retry in 60 s"
    assert str(outcome_of(charge, answered(404))) == "dead: permanent"
    assert str(outcome_of(charge, answered(503))) == "retry in 30 s"
    assert str(outcome_of(charge, answered(503), attempt=21)) == "dead: exhausted"
    assert str(outcome_of(charge, answered(503), headers=(("x-test", b"1"),))) == "dead: permanent"
    assert str(outcome_of(charge, ConnectionError())) == "retry in 1 s"


def test_a_message_is_published_with_the_receipt(run: Callable[[Block], dict[str, Any]]):
    charge = run(find_page_block("receipt = "))["charge"]
    (sent,) = outcome(charge, {"id": 1, "amount": 5}).published
    assert (sent.topic, sent.key) == ("invoices", b"1")
    assert json.loads(sent.value or b"") == {"order": 1, "receipt": "receipt-1"}


def test_a_reply_has_the_correlation_id_of_its_request_and_goes_to_a_known_topic_only(
    run: Callable[[Block], dict[str, Any]],
):
    charge = run(find_page_block('"shop.charge", give_up_after'))["charge"]
    asked = (("correlation_id", b"c-1"), ("reply_to", b"replies"))
    (reply,) = outcome(charge, {"id": 1, "amount": 5}, headers=asked).published
    assert (reply.topic, dict(reply.headers)["correlation_id"]) == ("replies", b"c-1")
    assert json.loads(reply.value or b"") == {"order": 1, "charged": True}
    assert outcome(charge, {"id": 1, "amount": 5}).published == ()
    assert str(outcome(charge, {"id": 1}, headers=(("reply_to", b"orders"),))) == "dead: permanent"


def test_the_key_of_a_call_is_the_same_each_time(run: Callable[[Block], dict[str, Any]]):
    charge = run(find_page_block("def send_payment"))["charge"]
    message = Message(topic="orders", partition=3, offset=1234, value=b'{"card": "4242", "amount": 5}')
    assert outcome(charge, message).returned == "5 from 4242 by orders-3-1234:charge"


def test_the_work_of_a_handler_is_settled_in_its_transaction(run: Callable[[Block], dict[str, Any]]):
    module = run(find_page_block("payments.db"))
    engine = module["engine"]
    module["Base"].metadata.create_all(engine)
    message = Message(topic="orders", partition=3, offset=1234, value=b'{"id": 1, "amount": 5}')
    assert [str(outcome(module["charge"], message)) for _ in range(2)] == ["done", "done"]
    with module["Session"](engine) as session:
        assert session.query(module["Payment"]).count() == 1
    engine.dispose()


def test_the_report_of_crashes_is_the_one_on_the_page(
    run: Callable[[Block], dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    charge = run(find_page_block("test_a_crash_may_charge_a_card_twice"))["charge"]
    bank = FakeService("bank")
    monkeypatch.setattr("shop.handlers.charge_card", bank)
    report = crash_everywhere(charge, {"card": "4242", "amount": 5}, services=[bank])
    with pytest.raises(AssertionError) as failed:
        report.assert_safe()
    shown = find_page_block("was killed at").text
    assert str(failed.value).replace(f"{tmp_path}/", "") == shown.rstrip()


def test_a_message_is_published_with_the_payment_of_its_transaction(run: Callable[[Block], dict[str, Any]]):
    module = run(find_page_block("shop.db"))
    engine = module["engine"]
    module["Base"].metadata.create_all(engine)
    result = outcome(module["charge"], {"id": 1, "amount": 5})
    assert (str(result), [sent.topic for sent in result.published]) == ("done", ["invoices"])
    with module["Session"](engine) as session:
        assert session.get(module["Payment"], 1).amount == 5
    engine.dispose()


def test_flower_shows_the_address_of_the_console(run: Callable[[Block], dict[str, Any]]):
    show = run(find_page_block("# flowerconfig.py"))["format_task"]
    task = show(SimpleNamespace(result=None, uuid="orders-3-1234:charge"))
    assert task.result == " https://console.example.com/find?q=orders-3-1234%3Acharge"


def run_site(folder: Path, code: str, **variables: str) -> None:
    """Run code in a project's folder, in a process of its own: the project's app is the app of its process."""
    environ = {
        "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
        "CELERY_BROKER_URL": "redis://localhost:1/0",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


def write_files(folder: Path, *blocks: Block) -> None:
    """Write each block into the file that it says it is; a piece of settings goes behind what is there."""
    for block in blocks:
        file = folder / block.file
        file.parent.mkdir(parents=True, exist_ok=True)
        before = file.read_text() if file.name == "settings.py" else ""
        file.write_text(before + block.text)


def test_the_files_of_the_page_on_django_make_a_project_with_its_tables(tmp_path: Path):
    shutil.copytree(ROOT / "tests" / "sites" / "django", tmp_path, dirs_exist_ok=True)
    words = ('config_from_object("django.conf', "# mysite/settings.py", "RunSQL")
    write_files(tmp_path, *(find_page_block(each) for each in words))
    run_site(
        tmp_path,
        """
import django
django.setup()
from django.core.management import call_command
from django.db import connection
call_command("migrate", verbosity=0)
from bridge.formats.user_database import OUTBOX_TABLE, TABLE
assert {OUTBOX_TABLE, TABLE} <= {*connection.introspection.table_names()}
from mysite.celery import app
from tasks.declaration.app_setup import handler_app as current
app.loader.import_default_modules()
assert current() is app
assert "shop.handlers.charge" in app.tasks and "shop.tasks.count_payments" in app.tasks
assert app.conf.kafka_topics == {"orders": {"commit": "completion"}}
""",
        DJANGO_SETTINGS_MODULE="mysite.settings",
        TEST_DATABASE=str(tmp_path / "site.sqlite"),
        TEST_TOPIC="orders",
    )


def test_the_files_of_the_page_on_fastapi_make_a_service_that_knows_its_tasks(tmp_path: Path):
    write_files(tmp_path, *(block for block in PYTHON if re.match(r"shop/\w+\.py", block.file)))
    run_site(
        tmp_path,
        """
from shop.api import api
from shop.celery import app
app.loader.import_default_modules()
assert "shop.handlers.charge" in app.tasks and "shop.jobs.send_report" in app.tasks
assert "/reports/{day}" in api.openapi()["paths"]
""",
    )


def words_of(line: str) -> list[list[str]]:
    """Return the words of each program of a line, without comments."""
    words = shlex.split(line, comments=True)
    programs: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            programs.append([])
        else:
            programs[-1].append(word)
    return programs


def read_assignments(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables that a command line sets, and the command behind them."""
    words = words[1:] if words[:1] == ["export"] else words
    first = next((place for place, word in enumerate(words) if not re.match(r"[A-Z_]+=", word)), len(words))
    return dict(word.split("=", 1) for word in words[:first]), words[first:]


#: Those of the quickstart that are no `bridge …` run in tests/acceptance/test_quickstart.py alone, as all of its do.
COMMANDS: Final = sorted(
    {
        (block.page, line)
        for block in SHELL
        for line in block.commands()
        if block.page != "quickstart" or line.startswith("bridge ")
    }
)


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_a_command_of_a_page_is_one_that_there_is(page: str, line: str):
    # A setting that is commented out is checked as if it were set.
    for words in words_of(re.sub(r"^# (?=[A-Z_]+=)", "", line)):
        assigned, command = read_assignments(words)
        assert [name for name in assigned if not is_setting(name)] == []
        EnvironmentSettings.model_validate({k: v for k, v in assigned.items() if k in EnvironmentSettings.model_fields})
        match command:
            case ["bridge", *rest]:
                parse_bridge(rest)
            case ["celery", *rest]:
                celery_command.make_context("celery", rest, resilient_parsing=True)
            case ["pip", "install", wanted]:
                extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
                assert {*wanted.removeprefix(".[").removesuffix("]").split(",")} <= {*extras}
            case [program, *_]:
                assert program in OF_OTHERS, program


def is_setting(name: str) -> bool:
    """Return whether a variable of the environment is read by the project, or belongs to Celery or Kafka's client."""
    return (
        name in EnvironmentSettings.model_fields
        or ELSEWHERE.fullmatch(name) is not None
        or (name.startswith("KAFKA_") and property_fault(property_of(name), "") != "unknown")
    )


def property_of(variable: str) -> str:
    """Return the property of librdkafka that a variable sets."""
    return variable.removeprefix("KAFKA_").lower().replace("_", ".")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_settings_that_there_are(page: Path):
    text = page.read_text()
    variables = re.findall(r"(?<![\w-])(?:DEADLETTERS|BRIDGE|WORKER|LEDGER|KAFKA|TARGET_KAFKA)_[A-Z_]+", text)
    assert sorted({name for name in variables if not is_setting(name.rstrip("_"))}) == []
    settings = re.findall(r"`(kafka_\w+)`", text)
    spring = {name for name in settings if name.startswith(("kafka_dlt", "kafka_original"))}
    assert sorted({*settings} - spring - {*FileSettings.model_fields}) == []


INLINE: Final = sorted(
    {
        (page.stem, " ".join(found.split()))
        for page in PAGES
        for found in re.findall(r"`bridge\s+([^`]+)`", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    }
)


@pytest.mark.parametrize(("page", "line"), INLINE)
def test_a_command_in_a_sentence_has_words_that_there_are(page: str, line: str):
    assert find_unknown_words(shlex.split(line)) == []


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "json"], ids=str)
def test_a_json_block_parses(block: Block):
    value = json.loads(block.text)
    if isinstance(value, list):
        assert jsonpatch.JsonPatch(value).apply({"currency": "EUR", "amount": 1}) == {"currency": "EUR", "amount": 1250}


def test_every_block_has_a_language_that_is_checked():
    assert {block.language for block in BLOCKS} <= {"python", "console", "sh", "json", "text"}
    # What a command of the quickstart prints is compared there; tests/redis_user.py reads the rights of a Redis user.
    assert {block.page for block in BLOCKS if block.language == "text"} <= {
        "idempotency",
        "quickstart",
        "redis-servers",
    }
