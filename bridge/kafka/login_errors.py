"""The errors of a login to Kafka in words, with what to check (pure)."""

import re
from typing import Final

#: Errors of a login, by librdkafka's words, with what they mean and what to check.
_LOGIN_ERRORS: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (
            "invalid credentials with SASL mechanism",
            "Kafka refuses the user or the password: check KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD",
        ),
        ("Unsupported SASL mechanism", "Kafka does not offer this mechanism: check KAFKA_SASL_MECHANISM"),
        (
            '"invalid_token"',
            "Kafka refuses the token: check its expiry, and that Kafka expects its issuer and its audience. If "
            "KAFKA_OAUTH_CB gave none, its own error is in the log",
        ),
        ("OAuth callback raised", "KAFKA_OAUTH_CB gave no token: its own error is in the log"),
        (
            "token.*: .*(connect|resolve|[Tt]imed out|[Tt]imeout)",
            "the issuer does not respond: check KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL, and whether the issuer runs",
        ),
        (
            "Failed to (acquire SASL OAUTHBEARER|retrieve OIDC) token",
            "the issuer gives no token: check KAFKA_SASL_OAUTHBEARER_CLIENT_ID and "
            "KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET",
        ),
        (
            "certificate verify failed",
            "the certificate of Kafka is not trusted: check that KAFKA_SSL_CA_LOCATION has the CA that signed it, and "
            "that it has not expired and is for the name in KAFKA_BOOTSTRAP_SERVERS",
        ),
        (
            "alert (bad certificate|certificate (unknown|expired|required|revoked)|unknown ca|handshake failure)",
            "Kafka refuses the certificate of this client, which has expired, is missing, or is of a CA that Kafka "
            "does not know: check KAFKA_SSL_CERTIFICATE_LOCATION with `openssl x509 -noout -enddate -issuer -in FILE`",
        ),
    )
)


def explain_login(text: str) -> str:
    """Return what an error of a login means, and what to check; empty for any other error.

    >>> explain_login("Failed to acquire SASL OAUTHBEARER token: Failed to connect to 127.0.0.1:9")[:30]
    'the issuer does not respond: c'
    """
    return next((words for pattern, words in _LOGIN_ERRORS if pattern.search(text)), "")


def concerns_token(text: str) -> bool:
    """Return whether an error of a login may come of a function that gave no token: clients begin with a placeholder.

    >>> concerns_token('SASL authentication error: {"status":"invalid_token"} (after 9ms)')
    True
    """
    return '"invalid_token"' in text or "OAuth callback raised" in text
