"""The signature of Standard Webhooks, by which a receiver verifies the sender, and the secret that it is made with."""

import base64
import hashlib
import hmac
import secrets
from typing import Final

#: The prefix of a secret in Standard Webhooks, and bytes of a new one.
PREFIX: Final = "whsec_"
SECRET_BYTES: Final = 32


def sign_message(message: str, at: int, sent: bytes, secret: str) -> str:
    """Return the signature of a message with an id, sent at a time (seconds since the epoch)."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    made = hmac.new(key, b".".join((message.encode(), str(at).encode(), sent)), hashlib.sha256).digest()
    return f"v1,{base64.b64encode(made).decode()}"


def make_secret() -> str:
    """Return a new signing secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
