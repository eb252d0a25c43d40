"""The rewriting of a queue's messages: each that a function changes is replaced or removed where it is; and of the
server's files, which keep what was removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import redis

from lossless.transport.queue_inspection import read_pieces, read_waiting
from lossless.transport.transport_scripts import REPLACE_MESSAGE

#: Seconds for the server to rewrite its files.
REWRITTEN_WITHIN = 300.0
#: Seconds between two questions whether it has.
ASKED_EVERY = 0.2


class QueueRewrite(NamedTuple):
    """The result of a rewriting.

    Attributes:
        replaced, removed: messages that were changed, and that are gone.
    """

    replaced: int = 0
    removed: int = 0


def rewrite_queue(channel: Any, queue: str, change: Callable[[bytes], bytes | None]) -> QueueRewrite:
    """Replace the messages of a queue of `channel`'s: in its lists, set aside, or waiting; not what a worker has taken.

    Parameters:
        change: returns a message as it is to be, itself to leave it alone, or `None` to remove it. It is called again
            for a message that was moved meanwhile.

    Raises redis-py's errors.
    """
    client: Any = channel.bare_client()
    replaced = removed = 0
    # Twice, because a message goes from one place to another meanwhile.
    for _ in range(2):
        for name, kind, stored, raw in list(_find_stored(channel, client, queue, change)):
            new = change(raw)
            prefix = stored[: len(stored) - len(raw)]
            arguments = [kind, stored, b"" if new is None else prefix + new]
            if REPLACE_MESSAGE.run(client, [name], arguments):
                replaced, removed = replaced + (new is not None), removed + (new is None)
    return QueueRewrite(replaced, removed)


def _find_stored(
    channel: Any, client: Any, queue: str, change: Callable[[bytes], bytes | None]
) -> Iterator[tuple[bytes, str, bytes, bytes]]:
    """Yield the messages that are changed: the key that has each, its kind, the stored form, and the message."""
    lists = [channel.list_key(queue, step).encode() for step in channel.priority_steps]
    for name in (*lists, *(aside.encode() for aside in channel.aside_lists(queue))):
        for entry in read_pieces(client, name):
            if change(entry) != entry:
                yield name, "list", entry, entry
    waiting = channel.keys.waiting(queue)
    for entry, _ in read_waiting(client, waiting):
        raw = entry.partition(b"\0")[2]
        if change(raw) != raw:
            yield waiting.encode(), "set", entry, raw


def rewrite_server_files(client: redis.Redis) -> str:
    """Have Redis write its append-only file and its snapshot anew, and wait; return why it did not, or nothing.

    Raises redis-py's errors.
    """
    try:
        state: Any = client.info("persistence")
        if state.get("aof_enabled"):
            client.bgrewriteaof()
            if not (state := _wait(client, "aof_rewrite_in_progress", "aof_rewrite_scheduled")):
                return f"its append-only file was not rewritten within {REWRITTEN_WITHIN:g} s"
            if state.get("aof_last_bgrewrite_status") != "ok":
                return "its append-only file could not be rewritten (see Redis's log)"
        if state.get("rdb_saves", 1) or not state.get("aof_enabled"):
            client.bgsave()
            if not (state := _wait(client, "rdb_bgsave_in_progress")):
                return f"its snapshot was not written within {REWRITTEN_WITHIN:g} s"
            if state.get("rdb_last_bgsave_status") != "ok":
                return "its snapshot could not be written (see Redis's log)"
    except redis.ResponseError as exc:
        return f"Redis refuses to rewrite its files ({exc})"
    return ""


def _wait(client: redis.Redis, *running: str) -> dict[str, Any]:
    """Return the state of the server's files once none of these runs; nothing if that takes too long."""
    until = time.monotonic() + REWRITTEN_WITHIN
    while time.monotonic() < until:
        state: Any = client.info("persistence")
        if not any(state.get(name) for name in running):
            return dict(state)
        time.sleep(ASKED_EVERY)
    return {}
