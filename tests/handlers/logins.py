"""What KAFKA_OAUTH_CB names in the tests: it asks the issuer for a token as any client of OpenID Connect does."""

import base64
import json
import os
import time
import urllib.request
from pathlib import Path


def token(config: str) -> tuple[str, float]:
    """A token of the issuer that librdkafka's `sasl.oauthbearer.config` names; each call is noted."""
    login = base64.b64encode(os.environ["TEST_ISSUER_LOGIN"].encode()).decode()
    asked = urllib.request.Request(
        f"{config}/token", b"grant_type=client_credentials", {"authorization": f"Basic {login}"}
    )
    with urllib.request.urlopen(asked, timeout=5) as answer:
        given = json.load(answer)
    with Path(os.environ["TEST_TOKENS"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return given["access_token"], time.time() + given["expires_in"]
