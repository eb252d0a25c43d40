"""The encryption of the secrets and addresses of webhooks in the database, by the keys of DEADLETTERS_SECRET_KEY.

Addresses too: the path of Slack's is a password. Fernet encrypts and authenticates, so a changed value is not used.
A secret is encrypted with its webhook's format and address: whoever can write the table cannot have it sent elsewhere.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from bridge.deadletters.db.webhook_rows import Webhook
from bridge.errors import WebhookRefused
from bridge.settings.address_values import split_list

#: The beginning of an encrypted value: no address, signing secret or integration key begins like this.
PREFIX: Final = "fernet:"
CHANGED: Final = "its address or format was changed in the database"
UNREADABLE: Final = "encrypted by a key that DEADLETTERS_SECRET_KEY does not have"


@dataclass(frozen=True)
class WebhookCipher:
    """The keys of a process: the first one encrypts, all decrypt; without keys nothing is encrypted."""

    keys: tuple[str, ...] = field(repr=False)

    @classmethod
    def from_keys(cls, text: str) -> "WebhookCipher":
        """Return the cipher with the keys in DEADLETTERS_SECRET_KEY."""
        return cls(split_list(text))

    def encrypt(self, webhook: Webhook) -> Webhook:
        """Return a webhook as it is stored."""
        return _convert(_bind_secret(webhook), self._encrypt_value) if self.keys else webhook

    def decrypt(self, webhook: Webhook) -> Webhook:
        """Return a stored webhook as it was added.

        Raises:
            WebhookRefused: it is encrypted by another key, or was changed.
        """
        plain = _convert(webhook, self._decrypt_value)
        if not (plain.secret and webhook.secret.startswith(PREFIX) and _is_bound(plain)):
            return plain
        unbound = replace(plain, secret=json.loads(plain.secret)[-1])
        if _bind_secret(unbound) != plain:
            raise WebhookRefused(f"{CHANGED}: remove the webhook and add it again")
        return unbound

    def renew(self, webhook: Webhook) -> Webhook:
        """Return a stored webhook encrypted by the first key; the same one if it is.

        Raises:
            WebhookRefused: it is encrypted by another key, or was changed.
        """
        plain = self.decrypt(webhook)
        if not self.keys:
            return webhook
        try:
            if is_encrypted(webhook) and _is_bound(_convert(webhook, WebhookCipher(self.keys[:1])._decrypt_value)):
                return webhook
        except WebhookRefused:
            pass
        return self.encrypt(plain)

    def _encrypt_value(self, plain: str) -> str:
        # Most commands open the dead-letter store and touch no webhook.
        from cryptography.fernet import Fernet

        return PREFIX + Fernet(self.keys[0]).encrypt(plain.encode()).decode()

    def _decrypt_value(self, stored: str) -> str:
        if not stored.startswith(PREFIX):
            return stored
        from cryptography.fernet import Fernet, InvalidToken, MultiFernet

        try:
            if self.keys:
                token = stored.removeprefix(PREFIX)
                return MultiFernet([Fernet(key) for key in self.keys]).decrypt(token).decode()
        except InvalidToken:
            pass
        raise WebhookRefused(f"its secret is {UNREADABLE}: give the recorder that key")


def is_encrypted(webhook: Webhook) -> bool:
    """Return whether all that must be private of a stored webhook is encrypted."""
    return all(value.startswith(PREFIX) for value in (webhook.address, webhook.secret) if value)


def _bind_secret(webhook: Webhook) -> Webhook:
    """Return a plain webhook whose secret contains its format and address."""
    bound = json.dumps([webhook.format, webhook.address, webhook.secret])
    return replace(webhook, secret=bound) if webhook.secret else webhook


def _is_bound(plain: Webhook) -> bool:
    """Return whether a decrypted secret contains format and address; no secret of a webhook begins with `[`."""
    return not plain.secret or plain.secret.startswith("[")


def _convert(webhook: Webhook, convert: Callable[[str], str]) -> Webhook:
    address, secret = (convert(value) if value else "" for value in (webhook.address, webhook.secret))
    return replace(webhook, address=address, secret=secret)
