"""The topics of the load: every way to commit, to order and to batch, and which handlers each has."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

COMPLETION: Final = {"commit": "completion"}


class Topic(NamedTuple):
    """A topic without its prefix: its handlers (tests/handlers/load.py), its entry in `kafka_topics`, its partitions.

    `ordered` is what it keeps in order, "key", "partition" or nothing; `whole` says that no fault takes its log;
    `sends` that its handler sends; `shares` that several of its records run in a process at once; `unique` that its
    records have names, by which one that is written again is done without a run; `limited` that its handler shares the
    limit `LIMIT`.
    """

    handlers: tuple[str, ...]
    options: Mapping[str, Any] = {}
    partitions: int = 2
    whole: bool = True
    sends: bool = False
    shares: bool = False
    unique: bool = False
    limited: bool = False

    @property
    def ordered(self) -> str:
        return str(self.options.get("order", ""))

    @property
    def sequence(self) -> tuple[str, ...]:
        return tuple(self.options.get("sequence", ()))

    @property
    def completion(self) -> bool:
        return self.options.get("commit") == "completion"


#: The numbers of the limit that handlers share: rather more than the load needs, if nothing goes wrong.
LIMIT: Final[Mapping[str, Any]] = {"per_second": 10, "burst": 5, "concurrency": 3}
#: Where the handler `sends` sends.
OUT: Final = "out"
TOPICS: Final[Mapping[str, Topic]] = {
    "auto": Topic(("auto",)),
    "fixed": Topic(("fixed",)),
    "single": Topic(("single",), COMPLETION),
    "both": Topic(("both", "both_too"), COMPLETION),
    "keyed": Topic(("keyed",), {**COMPLETION, "order": "key"}),
    "keyed_fixed": Topic(("keyed_fixed",), {**COMPLETION, "order": "key"}),
    "line": Topic(("line",), {**COMPLETION, "order": "partition"}, partitions=6),
    "steps": Topic(("first", "second"), {**COMPLETION, "order": "key", "sequence": ("first", "second")}),
    "tiers": Topic(("tiers",)),
    "tiers_done": Topic(("tiers_done",), COMPLETION),
    "tiers_keyed": Topic(("tiers_keyed",), {**COMPLETION, "order": "key"}),
    "tiers_steps": Topic(("third", "fourth"), {**COMPLETION, "order": "key", "sequence": ("third", "fourth")}),
    "needs": Topic(("needs",)),
    "sends": Topic(("sends",), COMPLETION, sends=True),
    "beside": Topic(("beside",), COMPLETION, shares=True),
    "beside_keyed": Topic(("beside_keyed",), {**COMPLETION, "order": "key"}, shares=True),
    "bulk": Topic(("bulk",), shares=True),
    "bulk_keyed": Topic(("bulk_keyed",), {**COMPLETION, "order": "key"}, shares=True),
    "unique": Topic(("unique",), COMPLETION, unique=True),
    "unique_beside": Topic(("unique_beside",), COMPLETION, shares=True, unique=True),
    "limited": Topic(("limited",), COMPLETION, shares=True, limited=True),
    "limited_keyed": Topic(("limited_keyed",), {**COMPLETION, "order": "key"}, limited=True),
    "again": Topic(("again",), COMPLETION, whole=False),
    "cut": Topic(("cut",), COMPLETION, whole=False),
}
