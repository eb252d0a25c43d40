"""How the ledger reaches its Redis: by a socket, as a user with few rights, with a function's credentials."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from bridge.errors import LedgerUnavailable
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_permissions import find_refused_fates
from bridge.settings import RedisAccess
from lossless.transport.redis_credentials import FunctionCredentials
from tests.redis_user import list_refused, make_user
from tests.servers.redis import RedisServer


@pytest.fixture
def server(redis_shared: RedisServer) -> Iterator["redis.Redis"]:
    """The default user's client; `fates` is the user who may do little."""
    with redis_shared.client() as client:
        make_user(client, "shop", "one", name="fates")
        yield client
        client.execute_command("ACL", "DELUSER", "fates")


def with_logins(url: str, *logins: tuple[str, str]) -> Ledger:
    """A ledger whose every new connection has the next of these logins."""
    rest = iter(logins)
    credentials = FunctionCredentials(lambda: lambda: next(rest), "REDIS_CREDENTIALS")
    return Ledger(url, "cluster", "shop", access=RedisAccess(credentials=credentials))


def test_the_rights_of_the_page_are_enough_and_a_missing_one_is_named(redis_url: str, server: "redis.Redis"):
    with closing(with_logins(redis_url, ("fates", "one"))) as ledger:
        ledger.state()
        assert find_refused_fates(ledger) is None
        assert list_refused(server) == []
        if not server.eval("return redis.acl_check_cmd and 1 or 0", 0):
            pytest.skip("before Redis 7 no server says what it refuses")
        server.execute_command("ACL", "SETUSER", "fates", "-bitfield", "-zmscore")
        assert "refused: commands BITFIELD, ZMSCORE." in str(find_refused_fates(ledger))


def test_a_password_that_was_changed_is_asked_for_anew_and_a_refused_one_names_the_function(
    redis_url: str, server: "redis.Redis"
):
    with closing(with_logins(redis_url, ("fates", "one"), ("fates", "two"), *[("fates", "3")] * 2)) as ledger:
        ledger.state()
        server.execute_command("ACL", "SETUSER", "fates", ">two", "<one")
        server.execute_command("CLIENT", "KILL", "USER", "fates")
        ledger.state()
        server.execute_command("CLIENT", "KILL", "USER", "fates")
        with pytest.raises(LedgerUnavailable, match="refuses the user or password of REDIS_CREDENTIALS"):
            ledger.state()


def test_a_ledger_is_reached_by_a_unix_socket(tmp_path: Path):
    with RedisServer(unixsocket=str(tmp_path / "redis.sock"), appendonly="no") as server, server.client() as client:
        with closing(Ledger(f"redis+socket://{tmp_path}/redis.sock?virtual_host=3", "cluster", "shop")) as ledger:
            assert re.fullmatch(r"\w+-\d+", ledger.state().epoch)
            assert ledger.where == f"{tmp_path}/redis.sock"
        assert client.info("keyspace").keys() == {"db3"}
