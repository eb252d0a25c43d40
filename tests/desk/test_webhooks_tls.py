"""Webhooks over real TLS: the certificate must be of an authority that the system trusts, and of the name."""

import pytest

from bridge import bounded_request
from bridge.deadletters.alarms import webhook_address, webhook_sender
from bridge.settings.address_values import read_networks
from tests.servers.certificate import write_certificate
from tests.servers.receiver import HERE, receiver

HERE_ALONE = read_networks(HERE)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for localhost, with its key, that is its own authority."""
    folder = tmp_path_factory.mktemp("certificate")
    both, alone = folder / "both.pem", folder / "alone.pem"
    write_certificate("receiver", alone, both, host="localhost")
    both.write_text(both.read_text() + alone.read_text())
    return both


@pytest.fixture
def there(tmp_path, certificate):
    """A receiver that listens for TLS."""
    bounded_request.make_tls_context.cache_clear()
    with receiver(tmp_path, certificate) as made:
        yield made
    bounded_request.make_tls_context.cache_clear()


def post(there, host):
    address = there.url.replace("127.0.0.1", host)
    return webhook_sender.post_event(
        webhook_address.parse_target(address, HERE_ALONE), b"{}", {"webhook-id": "1"}, HERE_ALONE
    )


def test_it_is_sent_by_tls_to_a_name_whose_certificate_the_system_trusts(there, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert post(there, "localhost").words == "HTTP 200"
    (got,) = there.got
    assert (got.path, got.headers["host"]) == ("/hooks/T0/s3cret", f"localhost:{there.port}")


def test_nothing_is_sent_to_who_has_a_certificate_of_another_name_or_of_nobody_that_is_trusted(
    there, certificate, monkeypatch
):
    assert post(there, "localhost").words == "TLS: CERTIFICATE_VERIFY_FAILED"
    bounded_request.make_tls_context.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert post(there, "127.0.0.1").words == "TLS: CERTIFICATE_VERIFY_FAILED"
    assert there.got == []
