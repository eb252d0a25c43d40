"""Why a filter finds nothing: what it names is not there, or is misspelt, or nothing was recorded yet."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import OTHER_CAUSE, REASONS, UNKNOWN_CAUSE
from bridge.deadletters.store import names
from bridge.deadletters.store.database import Database
from bridge.handlers import Routes
from bridge.records.foreign_headers import CONFLUENT, CONNECT, KARAFKA, SHARE_GROUP, SMALLRYE, SPRING, UNKNOWN

#: Who writes letters, as they are labelled.
ORIGINS: Final = ("bridge", SPRING, CONNECT, CONFLUENT, SHARE_GROUP, SMALLRYE, KARAFKA, UNKNOWN)
NOTHING: Final = (
    "nothing was recorded here yet ({}): run `bridge deadletters record`, or look without a database: "
    "bridge deadletters list --from-topic"
)
NO_CAUSE: Final = "No letter has the cause {!r}: `bridge deadletters groups --group N` lists the causes of a group."


@dataclass(frozen=True)
class Absent:
    """What of a filter nobody knows. Every method raises DeskUnavailable where the database does not answer."""

    routes: Routes
    database: Database

    def of(self, asked: Filter) -> list[str]:
        """A sentence for each thing that the filter names and that is nowhere; only one where nothing is recorded.

        A handler, topic, reason or origin is known that some letter had, or that the app or this version has.
        """
        with self.database.reading() as connection:
            if not names.is_anything(connection):
                return [NOTHING.format(self.database.name)]
            ids, groups = names.not_there(connection, asked)
            found = [f"There is no dead letter {id_}." for id_ in ids]
            found += [f"There is no group {id_}." for id_ in groups]
            causes = {*names.had(connection, "causes"), UNKNOWN_CAUSE, OTHER_CAUSE} if asked.causes else set()
            found += [NO_CAUSE.format(cause) for cause in asked.causes if cause not in causes]
            for field, (what, ours) in self._ours().items():
                if asked_of := getattr(asked, field):
                    found += unknown(what, asked_of, {*names.had(connection, field), *ours})
        return found

    def _ours(self) -> dict[str, tuple[str, Iterable[str]]]:
        return {
            "handlers": ("handler", self.routes.handlers),
            "topics": ("topic", self.routes.topics),
            "reasons": ("reason", REASONS),
            "origins": ("origin", ORIGINS),
        }


def unknown(what: str, asked: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    """A sentence for each name that is not known, with the nearest that is (pure)."""
    there = sorted(filter(None, known))
    for name in asked:
        if name not in there:
            near = get_close_matches(name, there, 1)
            meant = f": is {near[0]!r} meant?" if near else f", of: {', '.join(there)}." if there else "."
            yield f"No letter has the {what} {name!r}{meant}"
