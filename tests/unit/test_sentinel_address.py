"""Addresses of Sentinels: kombu's connection and the ledger read the same."""

from lossless.sentinel_address import SentinelAddress, SentinelUrlConnection, parse_sentinel_url

LIST = "sentinel://app:se%3Bcret@one:1/3;sentinel://app:se%3Bcret@two/3"


def test_a_list_of_sentinels_is_read_with_its_master():
    found = parse_sentinel_url(f"{LIST}?master_name=main")
    assert found == SentinelAddress((("one", 1), ("two", 26379)), 3, "app", "se;cret", "main")
    assert "se;cret" not in repr(found)


def test_kombus_connection_takes_the_master_out_of_the_address():
    made = SentinelUrlConnection(f"{LIST}?master_name=main", transport_options={"socket_timeout": 1})
    assert (made.alt, made.password, made.virtual_host) == (LIST.split(";"), "se;cret", "3")
    assert made.transport_options == {"socket_timeout": 1, "master_name": "main"}
    assert made.clone().transport_options == made.transport_options
    plain = SentinelUrlConnection(LIST, transport_options={"master_name": "other"})
    assert plain.transport_options == {"master_name": "other"}
    assert SentinelUrlConnection("redis://h/2").virtual_host == "2"
