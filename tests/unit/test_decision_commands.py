"""What a command that decides says, and the code with which it ends: a script must not hold for safe what is not."""

from typing import Any

import pytest
from typer.testing import CliRunner

from bridge.cli import halt_policy_commands
from bridge.cli.command_io import AGAIN, OK
from bridge.cli.root_command import cli

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
