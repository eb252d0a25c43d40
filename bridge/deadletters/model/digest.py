"""The digests by which the database finds groups, letters, texts and keys (pure)."""

import hashlib


def compute_digest(*parts: str) -> bytes:
    """Return a digest of 16 bytes of these texts, in this order."""
    said = (part.encode("utf-8", "surrogateescape") for part in parts)
    data = b"".join([each for some in said for each in (len(some).to_bytes(4, "big"), some)])
    return hashlib.blake2b(data, digest_size=16).digest()


def key_digest(key: bytes | None) -> int | None:
    """Return a digest of a key as a number, for an index; `None` for no key."""
    if key is None:
        return None
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big", signed=True)
