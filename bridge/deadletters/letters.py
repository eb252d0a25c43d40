"""Dead letters looked at: a list by filter, how many there are, one with all that is known of it."""

from collections.abc import Iterator
from dataclasses import dataclass

from bridge.deadletters.filters import Cursor, Filter
from bridge.deadletters.shown import Count, Listed, Page, Shown
from bridge.deadletters.store.database import Database


@dataclass(frozen=True)
class Letters:
    """What is asked of letters. Every method raises DeskUnavailable where the database does not answer."""

    database: Database

    def page(self, asked: Filter, limit: int = 50, before: Cursor | None = None) -> Page:
        """The newest letters of a filter, or those behind another page; by the time of their last failure.

        However many letters there are, it takes a bounded time; so it may be short, or empty, and yet have a next one.
        """
        raise NotImplementedError

    def each(self, asked: Filter) -> Iterator[Listed]:
        """All letters of a filter, newest first, page after page: as many as the caller takes."""
        before: Cursor | None = None
        while True:
            page = self.page(asked, 200, before)
            yield from page.letters
            if page.next is None:
                return
            before = page.next

    def count(self, asked: Filter) -> Count:
        """How many letters a filter means: exactly where counts are kept or few fit, else "at least" so many."""
        raise NotImplementedError

    def one(self, id_: int) -> Shown:
        """A letter with all that is known of it.

        Raises:
            NoSuchLetter: there is none of that number (any more).
        """
        raise NotImplementedError

    def at(self, topic: str, partition: int, offset: int, handler: str | None = None) -> list[Listed]:
        """The letters of a source record, one a handler: what `orders-3-1234` names."""
        raise NotImplementedError
