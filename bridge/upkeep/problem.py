"""What needs a person: a sentence, and what it says as values beside it."""

from typing import Any, Final, Literal, Self

from bridge.records.times import iso

Kind = Literal[
    "silent",
    "redis",
    "halted",
    "policy",
    "breaker",
    "unnamed",
    "no bridge",
    "not consumed",
    "unassigned",
    "divided",
    "obstacle",
    "no worker",
    "unknown handler",
    "known to some",
    "lost",
    "log",
    "old",
    "topic",
    "overdue",
    "drained",
    "dying",
    "paused",
    "behind",
    "failing",
    "unpublished",
    "dead",
    "desk",
    "missed",
    "recorder",
    "grows",
    "webhook",
]

_VALUES: Final = ("kind", "what", "topic", "handler", "group", "since", "many", "of", "lost", "do")


class Problem(str):
    """One thing that needs a person, as the sentence that says it: what, since when, how many, and what to do.

    Attributes:
        kind: what it is, in a word that programs may rely on.
        what: the same in a few words.
        topic, handler, group: what it is about, a group of letters by its id; `None`: about none.
        since: Unix time; `None`: not known.
        many, of: how many of what it concerns; `None`: not known, or nothing is counted.
        lost: how many of these are lost, or may be; `None`: not known.
        do: what to do: a command, or a few words.
    """

    kind: Kind
    what: str
    topic: str | None
    handler: str | None
    group: int | None
    since: float | None
    many: int | None
    of: str
    lost: int | None
    do: str

    def __new__(
        cls,
        sentence: str,
        kind: Kind,
        what: str,
        *,
        topic: str | None = None,
        handler: str | None = None,
        group: int | None = None,
        since: float | None = None,
        many: int | None = None,
        of: str = "",
        lost: int | None = 0,
        do: str = "",
    ) -> Self:
        """Of a sentence, with what it says."""
        made = super().__new__(cls, sentence)
        values = (kind, what, topic, handler, group, since, many, of, lost, do)
        for name, value in zip(_VALUES, values, strict=True):
            setattr(made, name, value)
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[str, Kind, str], dict[str, Any]]:
        """What a copy is made of."""
        return (str(self), self.kind, self.what), {name: getattr(self, name) for name in _VALUES[2:]}

    def data(self) -> dict[str, Any]:
        """As programs read it."""
        found = {name: getattr(self, name) for name in _VALUES}
        return {**found, "since": None if self.since is None else iso(self.since), "sentence": str(self)}
