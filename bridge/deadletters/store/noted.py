"""What notes are about: that it is there, and its name for the trail."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from bridge.deadletters.store.schema import groups, kinds, letters


def names(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    """Letters by their ids, in words; without those that are not there."""
    found = (
        select(letters.c.id, kinds.c.topic, letters.c.partition, letters.c.offset, kinds.c.handler)
        .join(kinds, kinds.c.id == letters.c.kind_id)
        .where(letters.c.id.in_(ids))
    )
    return {
        row.id: f"{row.topic}-{row.partition}-{row.offset}" + (f":{row.handler}" if row.handler else "")
        for row in connection.execute(found)
    }


def is_group(connection: Connection, id_: int) -> bool:
    """Whether there is a group of that number."""
    return connection.execute(select(groups.c.id).where(groups.c.id == id_)).first() is not None
