"""What a Redis user must be allowed, and the versions that the transport is made for."""

import re
import tomllib

import pytest
import redis

from lossless.lua import Script
from lossless.transport import transport_scripts, version_check
from lossless.transport.redis_permissions import describe_refusal, is_refusal, list_needed_permissions
from lossless.transport.storage_layout import TransportKeys
from tests.processes import ROOT

ASKED = list_needed_permissions(TransportKeys("team."), ["team.a", "team.b"])


def places(*wrong: tuple[str, str]) -> list[int]:
    return [ASKED.index(pair) for pair in wrong]


def test_every_command_of_the_scripts_is_asked_for() -> None:
    # Who may not weigh a queue is told nothing of that, and all else goes on (weighing.py); who may not rewrite one is
    # told by the command that does.
    needed = [
        value
        for value in vars(transport_scripts).values()
        if isinstance(value, Script) and value not in (transport_scripts.WEIGH_QUEUE, transport_scripts.REPLACE_MESSAGE)
    ]
    texts = [value.text for value in needed]
    used = set(re.findall(r"redis\.p?call\('([A-Z]+)'", " ".join(texts)))
    assert used <= {command for command, _ in ASKED}


def test_every_key_has_the_prefix() -> None:
    assert {key for _, key in ASKED if not key.startswith("team.")} == {""}


def test_nothing_is_said_where_nothing_is_refused() -> None:
    assert describe_refusal(ASKED, []) is None


def test_a_command_that_is_refused_everywhere_is_named_alone() -> None:
    wrong = [pair for pair in ASKED if pair[0] in ("ZADD", "HSET")]
    assert "is refused: commands HSET, ZADD. Allow it" in str(describe_refusal(ASKED, places(*wrong)))


def test_a_key_that_is_refused_is_named_alone() -> None:
    wrong = [pair for pair in ASKED if pair[1] == "team.b"]
    assert "is refused: keys team.b. Allow it" in str(describe_refusal(ASKED, places(*wrong)))


def test_a_command_on_one_key_is_named_with_it() -> None:
    assert "is refused: RPOP on team.a. Allow it" in str(describe_refusal(ASKED, places(("RPOP", "team.a"))))


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (redis.exceptions.NoPermissionError("no permissions to run the 'evalsha' command"), True),
        (redis.ResponseError("The user executing the script can't run this command or subcommand script: x"), True),
        (redis.ResponseError("ACL failure in script: User app has no permissions to run the 'llen' command"), True),
        (redis.ResponseError("ACL failure in script: No permissions to access a key script: on @user_script:1."), True),
        (redis.ResponseError("WRONGTYPE"), False),
        (redis.ConnectionError("NOPERM"), False),
    ],
)
def test_a_refusal_is_told_from_an_outage(error: Exception, refused: bool) -> None:
    assert is_refusal(error) is refused


@pytest.mark.parametrize(
    ("name", "version", "fault"),
    [
        ("kombu", "5.7.0", False),
        ("kombu", "5.7.3", False),
        ("kombu", "5.8.0", True),
        ("kombu", "5.6.2", True),
        ("kombu", "5.7.0rc1", False),
        ("redis", "5.0.0", True),
        ("redis", "8.1.0", False),
        ("redis", "8.10.2", False),
        ("redis", "9.0.0b1", True),
        ("celery", None, False),
    ],
)
def test_another_version_than_the_private_parts_are_from_is_refused(
    name: str, version: str | None, fault: bool
) -> None:
    assert (version_check.find_version_fault(name, version) is not None) is fault


def test_what_is_installed_is_what_it_is_made_for() -> None:
    version_check.refuse_other_versions()


def test_the_project_asks_for_the_versions_that_it_is_made_for() -> None:
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for name, (since, before) in version_check.MADE_FOR.items():
        assert any(re.fullmatch(rf"{name}(\[\w+\])?>={since},<{before}", one) for one in asked), name
