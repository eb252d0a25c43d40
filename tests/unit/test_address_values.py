"""Addresses: which are a ledger's, and that none is shown with its password."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.settings.address_values import hide_password, holds_ledger, is_redis


@pytest.mark.parametrize(
    ("url", "redis", "ledger"),
    [
        ("redis://localhost:6379/0", True, True),
        ("rediss://user:secret@redis.example.com", True, True),
        # One server keeps the fates: which of several has them would be anybody's guess.
        ("redis://one:6379/0;redis://two:6379/0", True, False),
        ("sentinel://one:26379;sentinel://two:26379", True, True),
        ("redis://localhost:port/0", True, False),
        ("redis://localhost:0/0", True, False),
        ("redis+socket:///run/redis.sock", True, True),
        ("amqp://guest@localhost//", False, False),
        ("memory://", False, False),
        ("", False, False),
    ],
)
def test_which_url_is_redis_and_which_holds_a_ledger(url: str, redis: bool, ledger: bool):
    assert (is_redis(url), holds_ledger(url)) == (redis, ledger)


passwords = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=";&"), min_size=4).map(
    "QQ{}".format
)


def test_the_rest_of_an_address_is_shown():
    shown = hide_password("redis://me:secret@one:6379/0;sentinel://two:26379/0?password=secret&db=1")
    assert shown == "redis://…@one:6379/0;sentinel://two:26379/0?password=…&db=1"


@given(passwords, passwords)
def test_no_password_is_shown(one: str, two: str):
    url = f"redis://user:{one}@one:6379/0;sentinel://:{two}@two:26379/0?password={one}&db=1"
    shown = hide_password(url)
    assert one not in shown
    assert two not in shown
