"""A wrong command is answered with the right one, also of another group."""

import pytest
from typer.testing import CliRunner

from bridge.cli.root_command import cli


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["replay", "17"], "bridge deadletters replay"),
        (["record"], "bridge deadletters record"),
        (["users", "add", "ann"], "bridge deadletters users"),
        (["deadletters", "redrive", "orders"], "bridge redrive"),
    ],
)
def test_a_command_of_another_group_is_said_to_be_there(words, meant):
    ended = CliRunner().invoke(cli, words)
    assert ended.exit_code == 2
    assert f"Did you mean `{meant}`?" in ended.output


def test_what_no_group_has_is_answered_as_ever():
    assert "Did you mean 'status'?" in CliRunner().invoke(cli, ["statsu"]).output


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["plans", "118"], "Did you mean `bridge deadletters plans show 118`?"),
        (["users", "ann"], "Commands: list, add, role, scope, password, remove, tokens"),
        (["users", "tokens", "nightly"], "Commands: list, make, revoke"),
        (["webhooks", "pager"], "Commands: list, add, test, off, on, remove"),
    ],
)
def test_a_group_that_lists_says_what_to_write_where_it_is_given_a_name(words, meant):
    ended = CliRunner().invoke(cli, ["deadletters", *words], prog_name="bridge")
    assert ended.exit_code == 2
    assert meant in " ".join(ended.output.replace("│", " ").split())
