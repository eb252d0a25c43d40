"""Redis's credentials by a user's function: each connection asks, and what is wrong is said without a secret."""

from typing import Any

import pytest
import redis

from bridge.ledger import Ledger
from bridge.settings import RedisAccess, read_credentials
from lossless.transport.redis_credentials import FunctionCredentials, add_credentials, use_credentials


def of(function: Any) -> FunctionCredentials:
    return FunctionCredentials(lambda: function, "REDIS_CREDENTIALS")


def test_each_connection_asks_anew_and_a_user_may_be_left_out():
    answers = iter([("app", "one"), ["", "two"]])
    found = of(lambda: next(answers))
    assert [found.get_credentials(), found.get_credentials()] == [("app", "one"), ("default", "two")]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("s3cr3t", "it returned str"),
        (None, "it returned NoneType"),
        (("app",), "it returned (str)"),
        (("app", b"s3cr3t"), "it returned (str, bytes)"),
        (("app", "s3cr3t", "x"), "it returned (str, str, str)"),
        (("app", ""), "returned an empty password"),
    ],
)
def test_what_is_no_user_and_password_is_named_without_its_value(answer: Any, said: str):
    found = of(lambda: answer)
    with pytest.raises(redis.AuthenticationError) as wrong:
        found.get_credentials()
    assert str(wrong.value).startswith("the function of REDIS_CREDENTIALS ")
    assert said in str(wrong.value)
    assert "s3cr3t" not in str(wrong.value) + repr(found)


def test_a_function_that_fails_or_is_not_there_is_an_error_of_redis_that_names_the_setting():
    def fail() -> tuple[str, str]:
        raise OSError("no role")

    with pytest.raises(redis.AuthenticationError, match=r"of REDIS_CREDENTIALS failed: OSError: no role"):
        of(fail).get_credentials()
    missing = read_credentials({"REDIS_CREDENTIALS": "nowhere.at_all:login"})
    assert missing is not None
    with pytest.raises(redis.AuthenticationError, match=r"module 'nowhere\.at_all' cannot be imported"):
        missing.get_credentials()
    assert read_credentials({}) is None


@pytest.mark.parametrize(
    ("url", "asks"),
    [
        ("redis://h", True),
        ("redis://:pw@h", False),
        ("redis://app:pw@h", False),
        ("sentinel://h?master_name=m", True),
        ("sentinel://:pw@h?master_name=m", False),
    ],
)
def test_an_address_with_a_login_keeps_it(url: str, asks: bool):
    ledger = Ledger(url, "cluster", "group", access=RedisAccess(credentials=of(lambda: ("a", "b"))))
    parameters = ledger._connection._redis.connection_pool.connection_kwargs
    assert (parameters.get("credential_provider") is not None) is asks


def test_the_transport_has_them_where_its_url_has_no_login_and_while_they_are_used():
    use_credentials(found := of(lambda: ("a", "b")))
    try:
        bare: dict[str, Any] = {"host": "h", "username": None, "password": None}
        own: dict[str, Any] = {"host": "h", "username": None, "password": "pw"}
        add_credentials(bare)
        add_credentials(own)
        assert bare == {"host": "h", "credential_provider": found}
        assert own["password"] == "pw"
        assert "credential_provider" not in own
    finally:
        use_credentials(None)
    add_credentials(bare := {"host": "h"})
    assert bare == {"host": "h"}
