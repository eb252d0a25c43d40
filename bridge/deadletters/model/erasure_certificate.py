"""The certificate of an erasure: what was found where, what was erased, and what remains for how long (pure)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.formats.text_forms import format_time

#: Most coordinates of a finding.
MOST_NAMED: Final = 100


@dataclass(frozen=True, slots=True)
class ErasureFinding:
    """The person's data in one place.

    Attributes:
        place: its identifier, for programs: `database`, `queue`, `topic`, …
        name: the place for people.
        found, erased: how many; `found` is `None` if the place cannot be searched.
        unit: the noun of what is counted.
        remains: what remains there, for how long and why; empty: nothing does.
        is_due: whether a later run of the command erases it.
        records: coordinates of what was found, at most `MOST_NAMED`.
    """

    place: str
    name: str
    found: int | None
    erased: int = 0
    unit: str = "record"
    remains: str = ""
    is_due: bool = False
    records: Sequence[str] = ()

    def to_data(self) -> dict[str, Any]:
        """Return the finding as JSON-compatible data."""
        return {
            "place": self.place,
            "name": self.name,
            "found": self.found,
            "erased": self.erased,
            "remains": self.remains or None,
            "run_again": self.is_due,
            "records": list(self.records[:MOST_NAMED]),
        }


@dataclass(frozen=True, slots=True)
class ErasureCertificate:
    """The certificate of an erasure.

    Attributes:
        subject: the digest under which the audit log names the person.
        at: Unix time.
        is_plan: whether nothing was erased: it says what would be.
        unended: deliveries of the person that have not ended, each with its fate.
        earlier: earlier erasures of the person, in words.
    """

    subject: str
    at: float
    by: str
    why: str
    is_plan: bool
    findings: Sequence[ErasureFinding]
    unended: Sequence[str] = ()
    earlier: Sequence[str] = ()
    audit: dict[str, Any] = field(default_factory=dict)

    @property
    def is_due(self) -> bool:
        """Return whether a later run of the command erases more."""
        return any(finding.is_due for finding in self.findings)

    def to_data(self) -> dict[str, Any]:
        """Return the certificate as JSON-compatible data."""
        return {
            "subject": self.subject,
            "at": format_time(self.at),
            "by": self.by,
            "why": self.why,
            "plan": self.is_plan,
            "unended": list(self.unended),
            "findings": [finding.to_data() for finding in self.findings],
            "earlier": list(self.earlier),
            "audit": self.audit,
            "run_again": self.is_due,
        }
