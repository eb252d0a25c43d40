"""What a command that decides says, and the code with which it ends: a script must not hold for safe what is not."""

from typing import Any

import pytest
from typer.testing import CliRunner

from bridge.cli import halt_policy_commands
from bridge.cli.command_io import AGAIN, OK
from bridge.cli.root_command import cli
from bridge.formats.halt_scope import HaltScope

HOW: dict[str, Any] = {"halted": False, "changed": True, "by": "ann", "why": "", "unmirrored": None}


@pytest.mark.parametrize(
    ("unpublished", "code"), [(None, OK), ("Kafka does not answer.", AGAIN)], ids=["in Kafka", "in Redis alone"]
)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_what_redis_alone_has_is_no_success_yet(
    monkeypatch: pytest.MonkeyPatch, unpublished: str | None, code: int, form: tuple[str, ...]
):
    monkeypatch.setattr(halt_policy_commands, "load_app", lambda name: (None, None, None))
    monkeypatch.setattr(
        halt_policy_commands,
        "resume_topics",
        lambda *given: {"topics": {"orders": {**HOW, "unpublished": unpublished}}},
    )
    ended = CliRunner().invoke(cli, ["resume", "orders", *form])
    assert ended.exit_code == code
    if unpublished:
        assert "Kafka does not answer." in ended.output
        if not form:
            assert "NOT SAFE YET" in ended.output


@pytest.mark.parametrize("command", [("halt", "orders"), ("policy", "set", "charge", "max_retries=5")])
@pytest.mark.parametrize("why", ["", "  "])
def test_what_is_decided_without_a_reason_is_refused(command: tuple[str, ...], why: str):
    ended = CliRunner().invoke(cli, [*command, "--why", why])
    assert ended.exit_code == 2
    assert "give a reason" in ended.output


def test_a_handler_and_its_key_are_halted_and_resumed_by_the_same_arguments(monkeypatch: pytest.MonkeyPatch):
    asked: list[Any] = []

    def decide(halted: bool) -> Any:
        def act(app: Any, settings: Any, routes: Any, scopes: Any, why: str, by: str) -> dict[str, Any]:
            asked.append(scopes)
            scope = {"topic": "orders", "handler": "charge", "key": "47 11", "unpublished": None}
            return {"topics": {}, "handlers": [{**HOW, **scope, "halted": halted, "why": why}]}

        return act

    monkeypatch.setattr(halt_policy_commands, "load_app", lambda name: (None, None, None))
    monkeypatch.setattr(halt_policy_commands, "halt_handlers", decide(True))
    monkeypatch.setattr(halt_policy_commands, "resume_handlers", decide(False))
    words = ["orders", "--handler", "charge", "--key", "47 11"]
    ended = CliRunner().invoke(cli, ["halt", *words, "--why", "it books twice"])
    said = " ".join(ended.output.split())
    assert said.startswith("handler 'charge' of topic 'orders', key '47 11', is halted: it books twice.")
    assert "`bridge resume orders --handler charge --key '47 11'`" in said
    ended = CliRunner().invoke(cli, ["resume", *words])
    assert ended.output.split()[-2:] == ["is", "resumed."]
    assert asked == [[HaltScope("orders", "charge", "47 11")]] * 2
    for command in (["halt", "orders", "--key", "1", "--why", "x"], ["resume", "orders", "--key", "1"]):
        ended = CliRunner().invoke(cli, command)
        assert ended.exit_code == 1
        assert "name the handler too, with --handler" in ended.output
    for command in (["halt", "orders", "--handler", "", "--why", "x"], ["resume", "orders", "--handler", ""]):
        ended = CliRunner().invoke(cli, command)
        assert ended.exit_code == 1
        assert "--handler is empty: nothing was decided" in " ".join(ended.output.split())
    handler = ("orders", "--handler", "charge")
    for command in (["halt", *handler, "--key", "", "--why", "x"], ["resume", *handler, "--key", ""]):
        ended = CliRunner().invoke(cli, command)
        assert ended.exit_code == 1
        assert "--key is empty: nothing was decided" in " ".join(ended.output.split())
    for command in (["halt", *handler, "--key", "0xzz", "--why", "x"], ["resume", *handler, "--key", "0xzz"]):
        ended = CliRunner().invoke(cli, command)
        assert ended.exit_code == 1
        assert "'0xzz' is not valid hexadecimal. For this text as a key, write text:0xzz." in " ".join(
            ended.output.split()
        )
    assert len(asked) == 2


def test_all_resumes_topics_handlers_and_keys(monkeypatch: pytest.MonkeyPatch):
    topics = {"topics": {"mail": {**HOW, "unpublished": None}}, "handlers": []}
    handlers = [{**HOW, "topic": "orders", "handler": "charge", "key": None, "unpublished": "Kafka does not answer."}]
    monkeypatch.setattr(halt_policy_commands, "load_app", lambda name: (None, None, None))
    monkeypatch.setattr(halt_policy_commands, "resume_topics", lambda *given: topics)
    monkeypatch.setattr(halt_policy_commands, "resume_handlers", lambda *given: {"topics": {}, "handlers": handlers})
    ended = CliRunner().invoke(cli, ["resume", "--all"])
    assert ended.exit_code == AGAIN
    said = " ".join(ended.output.split())
    assert "mail is resumed." in said
    assert "handler 'charge' of topic 'orders' is resumed." in said


def test_a_topic_that_is_resumed_says_what_of_it_stays_halted(monkeypatch: pytest.MonkeyPatch):
    small = {"topic": "mail", "handler": "charge", "key": None, "halted": True, "changed": False, "why": "x", "by": "a"}
    result = {"topics": {"mail": {**HOW, "unpublished": None}}, "handlers": [small]}
    monkeypatch.setattr(halt_policy_commands, "load_app", lambda name: (None, None, None))
    monkeypatch.setattr(halt_policy_commands, "resume_topics", lambda *given: result)
    ended = CliRunner().invoke(cli, ["resume", "mail"])
    assert ended.exit_code == OK
    said = " ".join(ended.output.split())
    assert "mail is resumed. handler 'charge' of topic 'mail' is still halted: x." in said
