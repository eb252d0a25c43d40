"""What a batch's task says of its end: how many of its deliveries ended how, and which of them did not end well."""

from bridge.records.naming import listed

#: What most end as, and nobody looks for by name.
_UNNAMED = ("done", "skipped")


class Ends:
    """The ends of one task's deliveries (pure).

    Parameters:
        topic, partition: where their records lie.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition
        self._found: dict[str, list[int]] = {}

    def add(self, what: str, offset: int) -> None:
        """A delivery's end: `done`, `again`, `dead`, `skipped`, `discarded`, `put back`."""
        self._found.setdefault(what, []).append(offset)

    @property
    def counts(self) -> str:
        """`197 done, 2 again, 1 dead`."""
        return ", ".join(f"{len(offsets)} {what}" for what, offsets in self._found.items())

    @property
    def names(self) -> str:
        """`again: orders-3-1201 orders-3-1207; dead: orders-3-1234`, those of each kind as far as there is room."""
        return "; ".join(
            f"{what}: {listed(self._topic, self._partition, offsets)}"
            for what, offsets in self._found.items()
            if what not in _UNNAMED
        )

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.counts, self.names)))
