"""Where webhooks may be sent to."""

import re
import socket
from pathlib import Path

import pytest

from bridge.deadletters.alarms.webhook_address import REFUSED_PORTS, parse_target, resolve_target
from bridge.errors import WebhookRefused
from bridge.settings.address_values import read_networks

SECRET = "T000/B000/s3cret"


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (f"ftp://example.com/{SECRET}", "https://"),
        (f"https:///{SECRET}", "name a host"),
        (f"https://me:pw@example.com/{SECRET}", "no user"),
        (f"https://example.com/{SECRET}#x", "no #"),
        (f"https://example.com:99999/{SECRET}", "no URL"),
        (f"https://example.com/{SECRET}\r\nx: y", "visible ASCII"),
        (f"https://exämple.com/{SECRET}", "visible ASCII"),
        ("https://example.com/" + "x" * 2_000, "2,000"),
        (f"http://example.com/{SECRET}", "http:// is allowed only to"),
        (f"https://127.0.0.1/{SECRET}", "not public"),
        (f"https://[::1]/{SECRET}", "not public"),
        (f"https://10.1.2.3/{SECRET}", "not public"),
        (f"https://169.254.169.254/{SECRET}", "not public"),
        (f"https://[::ffff:10.0.0.1]/{SECRET}", "not public"),
        (f"https://[64:ff9b::a00:1]/{SECRET}", "not public"),
        (f"https://[2002:a00:1::]/{SECRET}", "not public"),
        (f"https://[fec0::1]/{SECRET}", "not public"),
        (f"https://[::7f00:1]/{SECRET}", "not public"),
        (f"https://[::ffff:0:a00:1]/{SECRET}", "not public"),
        (f"https://[4000::1]/{SECRET}", "not public"),
        (f"https://224.0.0.1/{SECRET}", "not public"),
        (f"https://0.0.0.0/{SECRET}", "not public"),
        (f"https://192.0.0.9/{SECRET}", "not public"),
        (f"https://192.88.99.1/{SECRET}", "not public"),
        (f"https://example.com:22/{SECRET}", "Port 22 is refused"),
        (f"https://example.com:6379/{SECRET}", "Port 6379"),
        (f"https://example.com:9092/{SECRET}", "Port 9092"),
        (f"https://8.8.8.8:12345/{SECRET}", "port is not allowed there"),
    ],
)
def test_what_is_no_address_or_leads_into_the_house_is_refused_and_not_repeated(address, why):
    with pytest.raises(WebhookRefused, match=why) as refused:
        parse_target(address, ())
    assert "s3cret" not in str(refused.value)


def test_a_public_address_is_taken_and_shown_without_its_path():
    target = parse_target(f"https://hooks.slack.com/services/{SECRET}?a=b", ())
    assert (target.host, target.port, target.path) == ("hooks.slack.com", 443, f"/services/{SECRET}?a=b")
    assert target.shown == "https://hooks.slack.com"
    assert "s3cret" not in repr(target)
    assert parse_target(f"https://[2606:2800:220:1::1]/{SECRET}", ()).host == "2606:2800:220:1::1"


def test_networks_that_are_named_may_be_sent_to_also_without_tls():
    allowed = read_networks("10.0.0.0/8, ::1")
    assert parse_target("http://10.1.2.3:8080/x", allowed).shown == "http://10.1.2.3:8080"
    assert parse_target("https://[::1]/x", allowed).shown == "https://[::1]"
    with pytest.raises(WebhookRefused, match="not public"):
        parse_target("https://192.168.0.1/x", allowed)
    with pytest.raises(WebhookRefused, match="no TLS"):
        parse_target("http://93.184.216.34/x", allowed)


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "localhost"])
def test_what_a_name_leads_to_is_looked_at_and_not_the_name(host):
    target = parse_target(f"https://{host}/x", ())
    with pytest.raises(WebhookRefused, match=r"not public|not found"):
        resolve_target(target, ())


def test_of_a_name_that_leads_to_several_addresses_each_must_be_public(monkeypatch):
    found = [(socket.AF_INET, 1, 6, "", (host, 443)) for host in ("93.184.216.34", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(WebhookRefused, match="not public"):
        resolve_target(parse_target("https://example.com/", ()), ())
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found[:1])
    assert resolve_target(parse_target("https://example.com/", ()), ()) == [(socket.AF_INET, ("93.184.216.34", 443))]


def test_the_page_lists_the_ports_that_are_refused():
    page = (Path(__file__).parents[2] / "docs/how-to/webhooks.md").read_text()
    (listed,) = re.findall(r"but 80 and 443, and ([\d,\s]+)\.", page)
    assert set(map(int, listed.split(","))) == {port for port in REFUSED_PORTS if port >= 1024}
    assert set(range(1024)) - REFUSED_PORTS == {80, 443}
