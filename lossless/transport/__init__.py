"""kombu's Redis transport, made to lose nothing.

A message is at every instant in its queue, with an owner that sends heartbeats, or waiting in Redis for
its time. `use` has every connection of the process to a ``redis://``, ``rediss://`` or ``sentinel://`` URL
use it; queues and messages stay kombu's own, so plain Celery clients and Flower share them. It needs Redis
6.2.

Options, in ``broker_transport_options`` (beside kombu's own):

``dead_after`` (30)
    Seconds without a sign of life after which what a worker held is put back. What a living worker holds is
    never given away, however long it runs: kombu's ``visibility_timeout`` has no part in it.
``due_interval`` (0.1)
    Seconds between looks for waiting messages (countdown, eta) that are due, all workers together.
``wait_from`` (0.1)
    A message due in more than this many seconds waits in Redis, one due sooner in the worker.
``take_limit`` (100)
    The most messages that one trip takes. The prefetch limit bounds it too.
``socket_timeout`` (10), ``socket_connect_timeout`` (5), ``socket_keepalive`` (True)
    kombu's, with defaults that a Redis which does not answer cannot block for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import redis
from kombu import transport as _kombu_transport
from kombu.exceptions import OperationalError
from kombu.transport import redis as _kombu_redis

from lossless.transport.celery_worker_state import follow_worker
from lossless.transport.channel import Channel, SentinelChannel
from lossless.transport.event_audience import ask_for_listeners
from lossless.transport.event_loop_poller import Poller
from lossless.transport.redis_credentials import FunctionCredentials, use_credentials
from lossless.transport.redis_permissions import find_refused, list_needed_permissions
from lossless.transport.version_check import refuse_other_versions, refuse_unfit_redis

kombu_transport: Any = _kombu_transport  # its stubs know nothing of what a subclass needs
kombu_redis: Any = _kombu_redis

__all__ = [
    "Channel",
    "FunctionCredentials",
    "SentinelChannel",
    "SentinelTransport",
    "Transport",
    "eviction_risk",
    "find_refused_queues",
    "refuse_unfit",
    "risks",
    "use",
]


def use(credentials: FunctionCredentials | None = None) -> None:
    """Have this process's connections to ``redis://``, ``rediss://`` and ``sentinel://`` URLs use this
    transport.

    Call it where the Celery app is made, so that workers, their child processes and producers all come by
    it. URLs stay as they are. It is process-wide (kombu's own table of transports), because kombu looks a
    transport up by the URL's scheme again at every failover of a broker list.

    Parameters:
        credentials: user and password of URLs that have none, asked for at each new connection.

    Raises `VersionMismatch` for versions of Celery, kombu and redis-py that this is not made for.
    """
    refuse_other_versions()
    for scheme in ("redis", "rediss"):
        kombu_transport.TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"
    kombu_transport.TRANSPORT_ALIASES["sentinel"] = f"{__name__}:SentinelTransport"
    kombu_transport._transport_cache.clear()
    use_credentials(credentials)
    follow_worker()
    ask_for_listeners()


def risks(connection: Any) -> list[str]:
    """Return the risks of a broker's Redis that would lose messages, one sentence each.

    Parameters:
        connection: a `kombu.Connection` to it.

    Raises redis-py's errors where Redis cannot be reached; a server that hides its settings has none.
    """
    found: list[str] = []
    if _info(connection, "persistence").get("aof_enabled") == 0:
        found.append("appendonly is no: a restart of Redis loses every queued, taken and waiting message")
    if eviction := eviction_risk(connection):
        found.append(eviction)
    elif (policy := _evicting_policy(connection)) is not None:
        found.append(
            f"maxmemory-policy is {policy} and maxmemory is 0: nothing is evicted now, but as soon as a maxmemory is "
            "set a full Redis evicts queued messages or the records of finished work (set noeviction)"
        )
    if unlimited := _unlimited_loss(_info(connection, "replication")):
        found.append(unlimited)
    return found


def _unlimited_loss(replication: Mapping[str, Any]) -> str | None:
    """Return that a master takes writes without its replicas, a sentence; None if it does not, or has none (pure)."""
    replicas = int(replication.get("connected_slaves", 0))
    # Redis reports how many replicas are good only if it needs some of them to write.
    if replication.get("role") != "master" or not replicas or "min_slaves_good_slaves" in replication:
        return None
    has = f"{replicas} replica{'s' * (replicas > 1)}"
    return (
        f"min-replicas-to-write is 0, and this master has {has}: frozen, or cut off from them, it still takes "
        "messages, and a failover loses these (set min-replicas-to-write 1: then it takes none after "
        "min-replicas-max-lag seconds)"
    )


def eviction_risk(connection: Any) -> str | None:
    """Return that a broker's Redis drops messages when it is full, a sentence; None if it has no limit, or hides it.

    Raises redis-py's errors where Redis cannot be reached.
    """
    policy = _evicting_policy(connection)
    if policy is None or _info(connection, "memory").get("maxmemory") == 0:
        return None
    return (
        f"maxmemory-policy is {policy}: a full Redis evicts queued messages or the records of finished work "
        "(set noeviction, in the parameter group of a managed Redis)"
    )


def _evicting_policy(connection: Any) -> str | None:
    """Return the policy of a Redis that evicts once it has a limit and reaches it."""
    policy: str = _info(connection, "memory").get("maxmemory_policy", "noeviction")
    return None if policy == "noeviction" else policy


def find_refused_queues(connection: Any, queues: Iterable[str]) -> str | None:
    """Return a sentence that says what of these queues a broker's Redis user may not do, or None.

    Parameters:
        connection: a `kombu.Connection` to it.

    Raises redis-py's errors where Redis cannot be reached.
    """
    channel: Any = connection.default_channel
    lists = [channel.list_key(queue, step) for queue in queues for step in channel.priority_steps]
    client = channel.bare_client()
    asked = list_needed_permissions(channel.keys, lists)
    return find_refused(lambda script, keys, args: script.run(client, keys, args), asked)


def refuse_unfit(connection: Any) -> None:
    """Raise `VersionMismatch` for a broker whose Redis is too old, or a cluster.

    Parameters:
        connection: a `kombu.Connection` to it.

    Raises redis-py's errors where Redis cannot be reached.
    """
    refuse_unfit_redis(_info(connection, "server"))


def _info(connection: Any, section: str) -> dict[str, Any]:
    """Return a section of INFO, which managed services allow where they forbid CONFIG; nothing where it is refused."""
    try:
        found: dict[str, Any] = connection.default_channel.client.info(section)
    except redis.ResponseError:
        return {}
    return found


class Transport(kombu_redis.Transport):  # type: ignore[misc]
    """The transport for ``redis://`` and ``rediss://``."""

    Channel = Channel
    #: A publication returns how many clients received it.
    tells_listeners = True
    #: kombu makes this of a connection that is lost while it publishes: what a worker's steps publish (mingle, events)
    #: would end it, since Celery begins anew at these errors alone.
    connection_errors = (*kombu_redis.Transport.connection_errors, OperationalError)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle = Poller()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Poll by the event loop, which also waits out outages of Redis."""
        self.cycle.start_event_loop(loop.readers, fails_over=self.Channel.chooses and len(set(self.client.alt)) > 1)
        super().register_with_event_loop(connection, loop)


class SentinelTransport(Transport):
    """The transport for ``sentinel://``."""

    default_port = 26379
    Channel = SentinelChannel
