"""What a receiver, its name server and the environment cannot do to a webhook's request."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bridge.deadletters.alarms import webhook_sender
from bridge.deadletters.alarms.webhook_address import parse_target
from bridge.settings.address_values import read_networks
from tests.servers.receiver import HERE, receiver

HERE_ALONE = read_networks(HERE)
Answer = Callable[[socket.socket], object]


def post(address, **headers):
    return webhook_sender.post_event(parse_target(address, HERE_ALONE), b"{}", headers, HERE_ALONE)


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """A receiver that reads a request and answers by itself, byte for byte; its address."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                made, _ = listening.accept()
                with contextlib.suppress(OSError), made:
                    made.recv(65_536)
                    answer(made)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/hooks"
        listening.shutdown(socket.SHUT_RDWR)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """A receiver has two seconds."""
    monkeypatch.setattr(webhook_sender, "WITHIN", 2.0)


def name_server(monkeypatch, *answers):
    """Names lead to these addresses, in turn."""
    looked_up: list[str] = []
    real = socket.getaddrinfo

    def look(host, port, *rest, **options):
        if host[0].isdigit():
            return real(host, port, *rest, **options)
        looked_up.append(host)
        hosts = answers[min(len(looked_up), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in hosts]

    monkeypatch.setattr(socket, "getaddrinfo", look)
    return looked_up


def test_a_name_that_leads_elsewhere_after_it_was_checked_is_connected_to_as_it_was_checked(tmp_path, monkeypatch):
    with receiver(tmp_path) as there:
        looked_up = name_server(monkeypatch, ["127.0.0.1"], ["127.0.0.2"])
        assert post(f"http://hooks.example.com:{there.port}/x").status == 200
        assert looked_up == ["hooks.example.com"]
        assert there.got[0].headers["host"] == f"hooks.example.com:{there.port}"


def test_the_next_address_of_a_name_is_tried_where_one_refuses(tmp_path, monkeypatch):
    with receiver(tmp_path) as there:
        name_server(monkeypatch, ["127.0.0.9", "127.0.0.1"])
        assert post(f"http://hooks.example.com:{there.port}/x").status == 200


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_no_proxy_of_the_environment_is_used(tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    with receiver(tmp_path) as there:
        assert post(there.url).status == 200


def test_no_password_of_a_netrc_file_is_sent(tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password s3cret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with receiver(tmp_path) as there:
        post(there.url)
        assert "authorization" not in there.got[0].headers


def endless(made: socket.socket, line: bytes) -> None:
    made.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        made.sendall(line)


@pytest.mark.parametrize("line", [b"x: y\r\n", b"a" * 10_000], ids=["headers", "one header"])
def test_a_header_without_end_is_no_answer_and_takes_no_memory_without_end(line):
    with server(lambda made: endless(made, line)) as address:
        begun = time.monotonic()
        assert post(address).status is None
        assert time.monotonic() - begun < 10


def test_a_body_without_end_is_not_read():
    def answer(made: socket.socket) -> None:
        endless(made, b"content-type: text/plain\r\n\r\n" + b"a" * 10_000)

    with server(answer) as address:
        assert post(address).status == 200


def test_an_interim_answer_is_not_the_answer():
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    with server(lambda made: made.sendall(early + b"HTTP/1.1 204 No Content\r\n\r\n")) as address:
        assert post(address).status == 204


def test_interim_answers_without_end_are_given_up_in_time():
    def answer(made: socket.socket) -> None:
        while True:
            made.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")
            time.sleep(0.05)

    with server(answer) as address:
        assert post(address).words == "it did not answer in time"


@pytest.mark.parametrize("said", [b"", b"220 smtp.example.com ESMTP\r\n", b"HTTP/1.1 abc\r\n\r\n"], ids=repr)
def test_what_is_no_http_is_no_answer(said):
    with server(lambda made: made.sendall(said)) as address:
        assert post(address).words.startswith("no answer of HTTP: ")


def test_a_tls_handshake_without_end_is_given_up_in_time(monkeypatch):
    ended = threading.Event()
    with server(lambda _: ended.wait(30)) as address:
        assert post(address.replace("http:", "https:")).words == "it did not answer in time"
        ended.set()


def test_a_receiver_that_reads_nothing_is_given_up_in_time():
    ended = threading.Event()
    with server(lambda _: ended.wait(30)) as address:
        target = parse_target(address, HERE_ALONE)
        answer = webhook_sender.post_event(target, b"x" * 20_000_000, {}, HERE_ALONE)
        assert answer.words == "it did not answer in time"
        ended.set()


def test_no_redirect_and_no_cookie_is_kept(tmp_path):
    with receiver(tmp_path) as there:
        there.answers(302, 0, 0, location="http://127.0.0.1:1/", **{"set-cookie": "a=b"})
        assert [post(there.url).status, post(there.url).status] == [302, 302]
        assert ["cookie" in got.headers for got in there.got] == [False, False]


def test_a_header_cannot_add_another(tmp_path):
    with receiver(tmp_path) as there:
        answer = post(there.url, **{"webhook-id": "1\r\nx-other: 2"})
        assert (answer.status, there.got) == (None, [])


def test_retry_after_is_read(tmp_path):
    with receiver(tmp_path) as there:
        there.answers(429, 0, 0, **{"retry-after": "7"})
        assert post(there.url).again_after == 7
