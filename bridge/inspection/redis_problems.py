"""The problems of a Redis: its memory is (nearly) full, it evicts keys, or its data do not get to disk (pure)."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bridge.formats.text_forms import format_count, format_share
from bridge.jobs.group_facts import GroupFacts, RedisMemory, format_known_since
from bridge.problems.bridge_problem_rows import REDIS_MEMORY_OR_DISK
from bridge.problems.problem import Problem, make_problem

#: The share of its memory from which a Redis is nearly full.
NEARLY_FULL: Final = 0.9


def find_memory_problems(facts: GroupFacts) -> Iterator[Problem]:
    """Yield a problem for each Redis that is full, evicts keys, or does not write its data to disk."""
    for redis in facts.memory:
        yield from find_redis_problems(redis, facts)


def find_redis_problems(redis: RedisMemory, facts: GroupFacts) -> Iterator[Problem]:
    """Yield the problems of a Redis with its memory and its disk."""
    now = facts.now
    if redis.full:
        yield _describe_full_redis(redis, facts)
    elif redis.allowed and redis.used >= redis.allowed * NEARLY_FULL:
        yield make_problem(
            REDIS_MEMORY_OR_DISK,
            "nearly full",
            many=redis.used,
            where=redis.where,
            used=f"{redis.used:,}",
            allowed=f"{redis.allowed:,}",
        )
    if redis.evicts or redis.evicted:
        yield make_problem(
            REDIS_MEMORY_OR_DISK,
            "evicts",
            many=redis.evicted,
            where=redis.where,
            policy=redis.evicts or redis.would_evict or "noeviction by now",
            evicted=format_count(redis.evicted, "key", "are"),
        )
    if redis.disk:
        unsaved = "" if redis.unsaved is None else f"; {format_count(redis.unsaved, 'change', 'are')} in no snapshot"
        yield make_problem(
            REDIS_MEMORY_OR_DISK,
            "disk",
            since=redis.saved_at,
            many=redis.unsaved,
            of="" if redis.unsaved is None else None,
            where=redis.where,
            began=format_known_since(redis.saved_at, now),
            fault=redis.disk,
            unsaved=unsaved,
        )


def _describe_full_redis(redis: RedisMemory, facts: GroupFacts) -> Problem:
    """Return the one problem of a full Redis: what bridges say of it, and who may run unlisted, belongs to it."""
    blocked = [
        at
        for state in (facts.bridges or {}).values()
        for text, at in list_obstacles(state)
        if is_full_redis_obstacle(text)
    ]
    since = min((at for at in blocked if at is not None), default=None)
    used = f"{redis.used:,} of {redis.allowed:,} bytes (maxmemory)" if redis.used else "it refuses writes (maxmemory)"
    waiting = (
        f"{format_share(len(blocked), len(facts.bridges or {}), 'bridge', 'consume')} nothing. " if blocked else ""
    )
    unlisted = f"Bridges and workers that are not listed may run{redis.unlisted}. " if redis.unlisted else ""
    return make_problem(
        REDIS_MEMORY_OR_DISK,
        "full",
        since=since,
        many=redis.used or None,
        where=redis.where,
        began=format_known_since(since, facts.now),
        used=used,
        blocked=waiting,
        unlisted=unlisted,
    )


def list_obstacles(state: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Yield the obstacles that a bridge announces, and since when each is there."""
    times = state.get("obstacles_since") or [None] * len(state["obstacles"])
    yield from zip(state["obstacles"], times, strict=False)


def is_full_redis_obstacle(text: str) -> bool:
    """Return whether a bridge consumes nothing because Redis is full."""
    return "maxmemory" in text
