"""A bridge and a worker whose Redis user may do little, and whose password changes while they work."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.delivery_checks import audit, choose, command, json_of, wait_until_settled
from tests.processes import Stack, eventually
from tests.redis_user import list_refused, make_user
from tests.servers.redis import RedisServer

COMPLETION = {"commit": "completion"}
TOPICS = ("orders", "many", "keyed", "named", "shared")


@pytest.fixture
def server(redis_shared: RedisServer, stack: Stack) -> Iterator["redis.Redis"]:
    """The default user's client; the stack comes as another user, whose login the file `login` holds."""
    with redis_shared.client() as client:
        make_user(client, stack.prefix, "one")
        yield client
        client.execute_command("ACL", "DELUSER", "app")


def produce_all_kinds(stack: Stack) -> dict[str, list[str]]:
    """Records that are done, retried, postponed, dead, keyed, named, and that kill a process."""
    values = [{"id": number} for number in range(20)]
    odd = [{"fail": 1}, {"later": 1}, {"dead": True}, {"kill": 1}]
    return {
        "orders": stack.produce("orders", *values, *odd),
        "many": stack.produce("many", *values, *odd),
        "keyed": stack.produce("keyed", *values, key=b"a"),
        "named": stack.produce("named", *values, headers={"message_id": b"1"}),
        "shared": stack.produce("shared", {"fail": 2}, *values),
    }


@pytest.mark.slow
def test_a_user_with_the_rights_of_the_page_does_all_of_it_and_its_password_changes_without_a_restart(
    stack: Stack, server: "redis.Redis", tmp_path: Path
):
    login = tmp_path / "login"
    login.write_text(json.dumps(["app", "one"]))
    choose(stack, dict.fromkeys(TOPICS, COMPLETION) | {"keyed": {**COMPLETION, "order": "key"}})
    stack.environ |= {
        "HANDLERS": "tests.handlers.fates,tests.handlers.redis_login",
        "REDIS_CREDENTIALS": "tests.handlers.redis_login:login",
        "TEST_LOGIN": str(login),
    }
    stack.make_topics(*TOPICS, partitions=2)
    bridge, worker = stack.bridge(), stack.worker()
    produce_all_kinds(stack)
    eventually(lambda: len(stack.done("orders")) >= 23, 40, "work is done as this user")

    server.execute_command("ACL", "SETUSER", "app", ">two")
    login.write_text(json.dumps(["app", "two"]))
    server.execute_command("ACL", "SETUSER", "app", "<one")
    assert int(server.execute_command("CLIENT", "KILL", "USER", "app")) > 5
    produce_all_kinds(stack)
    for topic in TOPICS:
        wait_until_settled(stack, topic)
        assert audit(stack, topic)["clean"]
    assert (bridge.exit_code, worker.exit_code) == (None, None)

    command(stack, "halt", stack.topic("orders"), "--why", "a test")
    assert stack.topic("orders") in json_of(stack, "status")["halted"]
    command(stack, "resume", stack.topic("orders"))
    command(stack, "policy", "set", "orders", "max_retries=3", "retry_delays=none", "--why", "a test")
    command(stack, "find", f"{stack.topic('orders')}-0-0")
    assert "answers" in command(stack, "check", code=None)
    assert list_refused(server) == []
    assert "two" not in (bridge.text + worker.text).split()
