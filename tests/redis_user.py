"""A Redis user who may do what docs/how-to/redis-servers.md allows, and nothing more."""

import re
from typing import Any

import redis

from tests.project_process import ROOT


def read_permissions() -> str:
    """Return the permissions of the page, as it has them."""
    found = re.search(r"```text\n(resetchannels.*?)```", (ROOT / "docs/how-to/redis-servers.md").read_text(), re.DOTALL)
    assert found
    return found[1]


def make_user(client: Any, prefix: str, *passwords: str, name: str = "app") -> None:
    """Make a user with the permissions of the page, for an application whose queues begin with `prefix`."""
    rules = read_permissions().replace("~shop*", f"~{prefix}*").split()
    client.execute_command("ACL", "SETUSER", name, "reset", "on", *(f">{each}" for each in passwords), *rules)
    client.execute_command("ACL", "LOG", "RESET")


def list_refused(client: "redis.Redis") -> list[tuple[str, str]]:
    """Return why and what the server has refused since, but for what redis-py does without."""
    log: list[Any] = client.execute_command("ACL", "LOG")
    entries = [each if isinstance(each, dict) else dict(zip(each[::2], each[1::2], strict=True)) for each in log]
    refused = [(each[b"reason"].decode(), each[b"object"].decode()) for each in entries]
    return [each for each in refused if each[1] != "client|setinfo"]
