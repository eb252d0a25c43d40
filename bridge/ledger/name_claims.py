"""The unique names of messages in Redis: a record claims its name while it runs, and keeps it for a window once it is
done. Another record with that name waits, or is a duplicate.

A name is one key, which expires. Its record is marked done in the step that marks its delivery (`NameMark`), so no
crash leaves a done name without a done delivery. A claim of a record that was lost ends with its lease, or when it is
dead or discarded (`is_given_up`), and the record itself takes it over at any time.
"""

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, Literal, NamedTuple

from bridge.errors import LedgerUnavailable
from bridge.ledger.fate_rules import Fate
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import Account, ledger_key
from bridge.ledger.ledger_scripts import CLAIM_NAME, RELEASE_NAME

_STATES: Final[dict[str, Literal["running", "replayed", "done"]]] = {"h": "running", "r": "replayed", "d": "done"}


class NameClaim(NamedTuple):
    """The answer to a claim.

    Attributes:
        state: "granted": the record has the name; else what the other record that has it does. "replayed": it runs,
            although it was dead.
        record: the other record, `orders-3-1234`.
    """

    state: Literal["granted", "running", "replayed", "done"] = "granted"
    record: str = ""


#: The answer for a message that needs no claim.
GRANTED: Final = NameClaim()


class NameClaims:
    """The names of one ledger's messages.

    Parameters:
        ledger: raises LedgerUnavailable in all methods if it does not answer.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def key(self, handler: str, topic: str, name: bytes) -> str:
        """Return the key of a name, which is of one length, whatever the name is.

        Parameters:
            handler, topic: for which the name is unique; two topics may number their messages alike.
        """
        parts = (*(part.encode() for part in (self._ledger.cluster, self._ledger.group, handler, topic)), name)
        # With their lengths: no two lists of parts give the same bytes.
        text = b"".join(b"%d:%s" % (len(part), part) for part in parts)
        digest = blake2b(text, digest_size=15).digest()
        return ledger_key("unique", urlsafe_b64encode(digest).decode())

    def claim(self, key: str, record: str, lease: float, *, replayed: bool = False) -> NameClaim:
        """Claim a name for a record that is about to run; a record takes over its own claim.

        Parameters:
            lease: seconds after which another record may claim it, whatever became of this one.
            replayed: whether a person has sent it back: then its fate does not say that it has ended.
        """
        state = "r" if replayed else "h"
        answer = self._ledger.run("claim a unique name", CLAIM_NAME, [key], [record, int(lease * 1000), state])
        return read_name_claim(answer)

    def is_given_up(self, accounts: Sequence[Account], record: str) -> bool:
        """Return whether another record of a topic is dead or discarded: its process may have been killed with a name.

        Parameters:
            accounts: of the topic, under each name of the handler, in any partition.
        """
        partition, offset = record.split("-")[-2:] if "-" in record else ("", "")
        if not (partition.isdecimal() and offset.isdecimal()):
            return False
        asked = [(account._replace(partition=int(partition)), [int(offset)]) for account in accounts]
        return any(Fate(fates[0]) in (Fate.DEAD, Fate.DISCARDED) for fates in self._ledger.fates_of(asked))

    def release(self, key: str, record: str) -> None:
        """Release the name of a record that did not get done; one that is done, or another's, stays."""
        self._ledger.run("release a unique name", RELEASE_NAME, [key], [record])


def read_name_claim(answer: bytes | None) -> NameClaim:
    """Return the claim that the script's answer means (pure).

    Raises:
        LedgerUnavailable: another program wrote the value, or a newer version.
    """
    if answer is None:
        return GRANTED
    state, _, record = answer.decode(errors="replace").partition(" ")
    if state not in _STATES:
        raise LedgerUnavailable(
            "A unique name in the ledger has a state that this version does not know. Find the program that writes "
            "keys beginning with ledger: there, and give it its own Redis."
        )
    return NameClaim(_STATES[state], record)
