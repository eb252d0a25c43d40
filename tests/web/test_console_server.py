"""`bridge deadletters serve`: on which addresses it listens, and what it says first."""

import logging
import socket

import pytest
import uvicorn

from bridge.console import console_server
from bridge.console.console_server import open_sockets
from bridge.deadletters.accounts.user_account import Role
from bridge.errors import ConsoleRefused

PROXY = {
    "DEADLETTERS_TRUSTED_PROXY": "10.0.0.7",
    "DEADLETTERS_PROXY_USER_HEADER": "X-Forwarded-User",
    "DEADLETTERS_PROXY_ROLE": "viewer",
}


@pytest.fixture
def served(monkeypatch, caplog):
    """With what a server would have been run."""
    caplog.set_level(logging.INFO, "bridge")
    configs = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: configs.append(self.config))
    monkeypatch.setattr(console_server, "open_sockets", lambda host, port: [])
    return configs


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "console.example.com", "localhost.evil.example"])
def test_without_users_no_other_machine_is_served_and_it_says_what_to_do(site, served, host):
    with pytest.raises(ConsoleRefused, match="users add NAME --role admin"):
        console_server.serve_console(site.console, host, 8093)
    assert served == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_without_users_it_prints_a_link_that_works_once(site, served, caplog, host):
    console_server.serve_console(site.console, host, 8093)
    assert [(each.host, each.port) for each in served] == [(host, 8093)]
    link = caplog.text.partition("http://localhost:8093")[2].strip()
    browser = site.browser("http://localhost:8093")
    assert browser.post(link).status_code == 303
    assert browser.get("/groups").status_code == 200
    assert browser.post(link).status_code == 403


def test_with_users_it_may_be_served_to_others_and_prints_no_link(site, served, caplog):
    site.user("ann", Role.VIEWER)
    console_server.serve_console(site.console, "0.0.0.0", 8093)
    assert [each.host for each in served] == ["0.0.0.0"]
    assert "sign-in" not in caplog.text
    assert site.console.sessions.use_link("") is False


def test_with_a_proxy_that_signs_people_in_it_may_be_served_to_it(new_site, served, caplog):
    console_server.serve_console(new_site(**PROXY).console, "10.0.0.8", 8093)
    assert [each.host for each in served] == ["10.0.0.8"]
    assert "sign-in" not in caplog.text


def test_nothing_that_a_request_says_changes_the_address_that_it_came_from(site, served):
    console_server.serve_console(site.console, "127.0.0.1", 8093)
    assert served[0].proxy_headers is False
    assert served[0].access_log is False


def test_with_an_issuer_it_may_be_served_to_others_and_prints_no_link(new_site, served, caplog):
    issuer = {
        "DEADLETTERS_OIDC_ISSUER": "https://sso.example.com",
        "DEADLETTERS_OIDC_CLIENT_ID": "console",
        "DEADLETTERS_OIDC_CLIENT_SECRET": "s3cr3t",
        "DEADLETTERS_OIDC_ROLE": "viewer",
        "DEADLETTERS_CONSOLE_URL": "https://console.example.com",
    }
    console_server.serve_console(new_site(**issuer).console, "0.0.0.0", 8093)
    assert [each.host for each in served] == ["0.0.0.0"]
    assert "sign-in" not in caplog.text


@pytest.fixture
def taken():
    """A port of this machine at which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def test_where_another_program_has_the_port_no_link_leads_to_it(site, taken, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "bridge")
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: pytest.fail("it was served"))
    with pytest.raises(ConsoleRefused, match=f"port {taken} of 127.0.0.1: another program listens.*--port"):
        console_server.serve_console(site.console, "127.0.0.1", taken)
    assert "sign-in" not in caplog.text


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("192.0.2.1", "no such address: --host takes one of its own"),
        ("localhost:80", "without a port"),
        ("no.such.host.invalid", "an address of this machine"),
    ],
)
def test_an_address_at_which_it_cannot_listen_is_refused_with_what_to_write(host, words):
    with pytest.raises(ConsoleRefused, match=words):
        open_sockets(host, 8093)


def test_it_listens_at_each_address_that_localhost_has():
    sockets = open_sockets("localhost", 0)
    assert sockets
    for each in sockets:
        with socket.create_connection(each.getsockname()[:2]):
            each.close()


def test_a_probe_is_answered_where_every_thread_waits(site, monkeypatch):
    def none_is_free(*_):
        raise AssertionError("it asked for a thread")

    monkeypatch.setattr("bridge.console.asgi_app.run_in_threadpool", none_is_free)
    assert site.browser().get("/healthz").text == "ok\n"
