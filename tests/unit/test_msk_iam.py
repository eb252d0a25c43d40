"""The token of Amazon MSK, signed by AWS's own signer with credentials that nobody has; it needs no network."""

import base64
import sys
import time
from urllib.parse import parse_qs, urlparse

import pytest

from bridge.errors import SettingsError, TokenUnavailable
from bridge.settings.imported_function import import_function
from bridge.settings.oauth_token import load_token_source

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
NAME = "bridge.kafka.msk_iam:token"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")


@pytest.mark.parametrize(("variable", "config"), [("AWS_REGION", ""), ("AWS_DEFAULT_REGION", ""), ("", "eu-west-1")])
def test_the_token_is_a_signed_request_to_connect_in_seconds(
    monkeypatch: pytest.MonkeyPatch, variable: str, config: str
):
    if variable:
        monkeypatch.setenv(variable, "eu-west-1")
    token = load_token_source("KAFKA_OAUTH_CB", NAME).fetch(config)
    assert 850 < token.expires - time.time() <= 900
    address = urlparse(base64.urlsafe_b64decode(token.value + "==").decode())
    asked = parse_qs(address.query)
    assert (address.scheme, address.netloc) == ("https", "kafka.eu-west-1.amazonaws.com")
    assert asked["Action"] == ["kafka-cluster:Connect"]
    assert asked["X-Amz-Expires"] == ["900"]
    assert asked["X-Amz-Credential"][0].startswith(f"{KEY}/")
    assert asked["X-Amz-Credential"][0].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert len(asked["X-Amz-Signature"][0]) == 64
    assert SECRET not in address.query


def test_a_missing_region_and_missing_credentials_are_said(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(TokenUnavailable, match="raised LookupError: set AWS_REGION to the region"):
        load_token_source("KAFKA_OAUTH_CB", NAME).fetch("")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(TokenUnavailable, match="AWS's chain of credentials has none"):
        load_token_source("KAFKA_OAUTH_CB", NAME).fetch("eu-west-1")


def test_without_the_extra_the_fault_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "bridge.kafka.msk_iam", raising=False)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(SettingsError) as refused:
        import_function("KAFKA_OAUTH_CB", NAME)
    assert "pip install '.[aws]'" in refused.value.faults[0]
