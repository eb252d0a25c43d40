"""The channel: kombu's Redis channel, with fetching, settling and delaying done by other modules of this package."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import time
from typing import Any

import redis
from kombu.log import get_logger
from kombu.transport import redis as _kombu_redis
from kombu.utils.json import dumps
from kombu.utils.objects import cached_property
from kombu.utils.uuid import uuid

from lossless.transport.broadcast import Broadcasts, BroadcastSubscriber, PrefixedBroadcastSubscriber
from lossless.transport.celery_worker_state import stopping
from lossless.transport.delayed_messages import DelayedMessages, TriedTag
from lossless.transport.event_loop_poller import Poller
from lossless.transport.heartbeat import HeartbeatKeeper, get_keeper
from lossless.transport.inflight_messages import MessageHolder
from lossless.transport.message_fetch import MessageFetcher
from lossless.transport.message_gates import MessageGates, SetAsideLists
from lossless.transport.message_recovery import DEAD_AFTER
from lossless.transport.prefetch_limit import QoS
from lossless.transport.redis_address import make_sentinel_options
from lossless.transport.redis_credentials import add_credentials
from lossless.transport.redis_outage import UNAVAILABLE, describe_redis_error, make_leaving_class
from lossless.transport.script_hook import HookStep, make_hooked_scripts
from lossless.transport.storage_layout import TransportKeys, add_headers, read_eta
from lossless.transport.version_check import refuse_unfit_redis

logger = get_logger("lossless.transport")
kombu_redis: Any = _kombu_redis  # its stubs know nothing of what a subclass needs

OWN_OPTIONS = ("dead_after", "due_interval", "wait_from", "take_limit", "rider")


class Channel(kombu_redis.Channel):  # type: ignore[misc]
    """A channel to ``redis://`` and ``rediss://``."""

    QoS = QoS
    #: Whether several addresses are several brokers, of which the first master that answers is taken.
    chooses = True
    dead_after = DEAD_AFTER
    due_interval = 0.1
    wait_from = 0.1
    take_limit = 100
    #: The transport option `rider`: the application's script hook (lossless.transport.script_hook).
    rider: Any = None
    socket_timeout = 10.0
    socket_connect_timeout = 5.0
    socket_keepalive = True
    _sentinel_manager: Any = None
    _async_sentinel_manager: Any = None

    from_transport_options = (*kombu_redis.Channel.from_transport_options, *OWN_OPTIONS)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.holder: MessageHolder | None = None
        self.keeper: HeartbeatKeeper | None = None
        self.no_ack_queues: set[str] = set()
        #: Called with an entry that is no message: its tag (for `replace`), its bytes, its queue, and the error.
        #: Without one, and where it raises, the entry is moved to `_undecodable`.
        self.on_unreadable: Callable[[str, bytes, str, Exception], None] | None = None
        self._kept_client: Any = None
        super().__init__(*args, **kwargs)
        if not self.ack_emulation:
            raise ValueError("ack_emulation=False loses messages; this transport does not support it")
        for name in ("dead_after", "due_interval", "take_limit"):
            if not 0 < float(getattr(self, name)) < math.inf:
                raise ValueError(f"broker_transport_options[{name!r}] must be more than 0, and finite")
        self.keys = TransportKeys(self.global_keyprefix)
        self.hooked_scripts = make_hooked_scripts(self.rider)
        self.poller: Poller = self.connection.cycle
        self.taker = MessageFetcher(self)
        self.broadcasts = Broadcasts(self)
        self._waiting = DelayedMessages(self)
        if self.chooses and len(set(self.connection.client.alt)) > 1:
            self._refuse_replica()

    def _refuse_replica(self) -> None:
        """Raise `redis.ConnectionError` for a server that is no master: another of the list may be one."""
        with contextlib.suppress(redis.exceptions.NoPermissionError):
            role = self.client.info("replication").get("role", "master")
            if role != "master":
                self.poller.discard(self)
                self._disconnect_pools()
                raise redis.ConnectionError(f"{self.connection.client.as_uri()} is no master but a {role}")

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        params: dict[str, Any] = super()._connparams(asynchronous)
        params["connection_class"] = make_leaving_class(params["connection_class"])
        add_credentials(params)
        return params

    # -- one client, instead of one per command

    def conn_or_acquire(self, client: Any = None) -> Any:
        """Return a context manager of ``client``, or of a client that is kept while its pool is."""
        if client is None:
            if self._kept_client is None or self._kept_client.connection_pool is not self._pool:
                self._kept_client = self._create_client()
            client = self._kept_client
        return _GivenClient(client)

    # -- consuming

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        """Consume from a queue. Raises `VersionMismatch` where Redis is too old, or a cluster."""
        if queue not in self._fanout_queues:
            if no_ack:
                self.no_ack_queues.add(queue)
            else:
                self.no_ack_queues.discard(queue)
                holder = self._hold()
                if self.poller.waits_out_outages:
                    holder.send_acks_with_takes()
                if self.keeper is not None:
                    self.keeper.check_permissions(self._lists(queue))
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def _hold(self) -> MessageHolder:
        if self.holder is None:
            with contextlib.suppress(redis.exceptions.NoPermissionError):
                refuse_unfit_redis(self.client.info("server"))
            broker = (self.connection.client.as_uri(include_password=True), self.global_keyprefix)
            self.keeper = get_keeper(broker, self._make_keeper)
            self.poller.set_keeper(self.keeper)
            self.holder = self.keeper.holder(self.hooked_scripts.ack)
        return self.holder

    def _make_keeper(self) -> HeartbeatKeeper:
        managers: tuple[Any, Any] = (self._sentinel_manager, self._async_sentinel_manager)
        try:
            client = redis.Redis(connection_pool=self._get_pool())
        finally:
            self._sentinel_manager, self._async_sentinel_manager = managers  # the keeper outlives this channel
        return HeartbeatKeeper(client, self.keys, float(self.dead_after), float(self.due_interval))

    @property
    def active_queues(self) -> list[str]:
        """The queues consumed from, without those of broadcasts; kombu's takes three times as many steps."""
        fanout = self.active_fanout_queues
        return [*{queue: None for queue in self._active_queues if queue not in fanout}]

    def turn(self) -> None:
        """Deliver the messages that have arrived, and send pending commands."""
        if self.active_queues or self.holder is not None:
            self.taker.turn()

    def deliver(self) -> bool:
        """Deliver the messages that have arrived; return whether there were any."""
        return self.taker.arrivals.deliver()

    def hand_over(self, message: dict[str, Any], queue: str) -> None:
        """Deliver a message to a queue's consumers."""
        self.connection._deliver(message, queue)

    def listens_as(self, exchange: str) -> str | None:
        """Return the queue name that subscribes to a fanout exchange, None if there is no subscription."""
        return None if self.closed else self._fanout_to_queue.get(exchange)

    def queues_in_turn(self) -> list[str]:
        """Return the queues consumed from, the one to serve first in front."""
        return list(self._queue_cycle.consume(len(self.active_queues)))

    def served(self, queue: str) -> None:
        """Note which queue was served last."""
        self._queue_cycle.rotate(queue)

    def list_key(self, queue: str, step: int) -> str:
        """Return the full key of the list of a queue's priority step."""
        return f"{self.global_keyprefix}{self._q_for_pri(queue, step)}"

    def now(self) -> float:
        """Return the server's time (Unix), which is one for all workers."""
        return self.taker.now()

    def check_body(self, message: dict[str, Any]) -> None:
        """Raise unless a message's body can be decoded."""
        self.decode_body(message.get("body"), message["properties"].get("body_encoding"))

    def settle_soon(self) -> None:
        """Without an event loop, settle now; if that fails the keeper repeats it."""
        if not self.poller.waits_out_outages:
            self.settle_now()

    def settle_now(self) -> None:
        """Send pending settlements at once; if that fails the keeper repeats it."""
        if self.holder is not None:
            try:
                self.holder.settle()
            except UNAVAILABLE as exc:
                logger.warning(
                    "settling messages failed: %s; it is repeated until Redis takes it", describe_redis_error(exc)
                )

    def basic_cancel(self, consumer_tag: str) -> Any:
        """Cancel a consumer. After the last one, acks no longer wait for a take: the keeper sends them at
        once.

        A worker that stops gives back at once what no process has begun, instead of after its last task.
        """
        result = super().basic_cancel(consumer_tag)
        if self.holder is not None and not self._active_queues:
            if stopping():
                self.taker.close()
                self.qos.give_back_unstarted()
            self.holder.send_acks()
        return result

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Take one message without waiting for it, None if there is none."""
        if no_ack:
            return super().basic_get(queue, no_ack=True, **kwargs)
        self._hold()
        payload = self.taker.take_one(queue)
        with self.conn_or_acquire() as client:
            self._maybe_update_queues_expire(client, queue)
        if payload is None:
            return None
        message = self.Message(payload, channel=self)
        self.qos.append(message, message.delivery_tag)
        return message

    # -- the start and the ends of a request

    def begun(self, delivery_tag: str) -> None:
        """Note that a task has begun with a message."""
        if self.holder is not None:
            self.holder.begun(delivery_tag)

    def was_given_away(self, delivery_tag: str) -> bool:
        """Return whether a message that this or another process took was redelivered to others. Raises redis-py's
        errors.
        """
        owner, _, field = delivery_tag.rpartition(".")
        client = self.bare_client()
        held = client.hexists(self.keys.taken(owner), field)
        return not held and bool(client.exists(self.keys.swept(owner)))

    def bundle_with_ack(self, delivery_tag: str, keys: Sequence[str], args: Sequence[str | int | bytes]) -> HookStep:
        """Bundle a step of the script hook with the acknowledgement of a message, which must follow.

        It is repeated until Redis has answered, as the acknowledgement is; and done alone where that message is this
        worker's no more. Returns the step, which knows when it was done.
        """
        step = HookStep(keys, args)
        if self.holder is not None:
            self.holder.bundle_with_ack(delivery_tag, step)
        return step

    def replace(
        self,
        delivery_tag: str,
        message: dict[str, Any],
        queue: str | None = None,
        eta: float | None = None,
        gate: str | None = None,
        first: bool = False,
    ) -> None:
        """Put ``message`` into a queue and remove the taken one, in one step: both happen, or neither.

        Parameters:
            delivery_tag: of the taken message.
            message: in kombu's wire form, its body encoded as its property ``body_encoding`` says.
            queue: the queue to put into, past all exchanges; None: the one that the taken message came from.
            eta: seconds since the epoch before which it must not be delivered, None: at once.
            gate: it waits there, and goes through before what was never taken; None: as its property says.
            first: it goes through that gate before all.

        It is decided when this returns and done soon after: the taken message stays in Redis until then, and the
        step is repeated until Redis has answered, on a closed channel too. What is no longer this worker's (it was
        believed dead, and its messages were given to others) is left alone, and nothing is put.

        A broadcast message lies in no queue: see lossless/transport/broadcast.py. Raises redis-py's errors for one.
        """
        message["properties"]["delivery_tag"] = uuid()
        taken = self.holder.entry(delivery_tag) if self.holder is not None else None
        if taken is None:
            if self.broadcasts.holds(delivery_tag):
                self.broadcasts.replace(delivery_tag, message, queue, eta)
            return
        name = taken.queue if queue is None else queue
        key = self.list_key(name, self._get_message_priority(message, reverse=False))
        raw = dumps(message).encode()
        self.qos.settle(delivery_tag, lambda holder: holder.replace(delivery_tag, name, key, raw, eta, gate, first))

    def put_off(self, delivery_tag: str, due: float, headers: Mapping[str, object] | None = None) -> None:
        """Put a taken message back into its list at ``due`` (seconds since the epoch), or when this channel closes.

        The message keeps its bytes, unless it gets further ``headers``.

        It waits in Redis. Where no other process of this transport is left then, nobody would bring it back.
        """
        taken = self.holder.entry(delivery_tag) if self.holder is not None else None
        if taken is not None:
            taken = replace(taken, raw=add_headers(taken.raw, headers)) if headers else taken
            self._waiting.note_put_off(taken)
        raw = None if taken is None else taken.raw
        self.qos.settle(delivery_tag, lambda holder: holder.wait(delivery_tag, due, raw))

    def note_unknown(self, for_long: bool = False) -> None:
        """Note that this worker does not know the task of the message being delivered: others take first then.

        What has been so ``for_long`` comes seldom, and no worker has taken it so far: nobody is let go first for it.
        """
        self.taker.arrivals.note_unknown(for_long)

    # -- publishing

    def _inplace_augment_message(self, message: dict[str, Any], *args: Any) -> None:
        before = message["properties"].get("delivery_tag")
        super()._inplace_augment_message(message, *args)
        if isinstance(before, TriedTag):
            message["properties"]["delivery_tag"] = before

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **kwargs: Any) -> None:
        if kwargs.get("_publish_batch") is not None:
            super()._put_fanout(exchange, message, routing_key, **kwargs)
        else:
            self.broadcasts.publish(message, self._get_publish_topics(exchange, routing_key))

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> Any:
        """Put a message into its queue, or among the waiting ones if it is due later."""
        due = read_eta(message) if message.get("headers") else None
        if due is None or due - time() <= self.wait_from:
            return super()._put(queue, message, **kwargs)
        key = self.list_key(queue, self._get_message_priority(message, reverse=False))
        return self._waiting.put(queue, key, message, due, kwargs.get("_publish_batch"))

    def put(self, queue: str, message: dict[str, Any]) -> None:
        """Put a message into its queue, past all exchanges."""
        self._put(queue, message)

    def put_back(self, queue: str, message: dict[str, Any]) -> None:
        """Put a message that has no owner back into its list, next to be taken."""
        key = self.list_key(queue, self._get_message_priority(message, reverse=False))
        with contextlib.suppress(*UNAVAILABLE):
            self.bare_client().rpush(key, dumps(message))

    # -- queues

    def waiting(self, queue: str, most: int) -> list[dict[str, Any]]:
        """Return the messages of a queue that wait for their time, in kombu's wire form, the first due in front."""
        return self._waiting.messages(queue, most)

    def waiting_count(self, queue: str) -> int:
        """Return how many messages of a queue wait for their time, or for a gate to open."""
        return self._waiting.count(queue) + self.aside_count(queue)

    def aside_count(self, queue: str) -> int:
        """Return how many messages of a queue wait for a gate to open."""
        return sum(self._aside.lengths(self._lists(queue)).values())

    def aside_lists(self, queue: str) -> list[str]:
        """Return the lists that hold the messages of a queue set aside by gates."""
        return [self.keys.aside_of(member) for member in self._aside.members(self._lists(queue))]

    @property
    def gates(self) -> MessageGates:
        """The gates of this broker."""
        return MessageGates(self.bare_client(), self.global_keyprefix)

    @property
    def _aside(self) -> SetAsideLists:
        return SetAsideLists(self.bare_client(), self.keys)

    def _lists(self, queue: str) -> list[str]:
        return [self.list_key(queue, step) for step in self.priority_steps]

    def bare_client(self) -> redis.Redis:
        """Return a client that adds no key prefix."""
        return redis.Redis(connection_pool=self.pool)

    def _purge(self, queue: str) -> int:
        return int(super()._purge(queue)) + self._waiting.drop(queue) + self._aside.drop(self._lists(queue))

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        super()._delete(queue, *args, **kwargs)
        self._waiting.drop(queue)
        self._aside.drop(self._lists(queue))

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any) -> Any:
        """Delete a queue, with what waits for it; ``if_empty``, only if nothing waits either."""
        if if_empty and self.waiting_count(queue):
            return None
        return super().queue_delete(queue, if_unused=if_unused, if_empty=if_empty, **kwargs)

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return bool(self.bare_client().exists(*self._lists(queue), self.keys.waiting(queue)) or self.aside_lists(queue))

    # -- connections

    @cached_property
    def subclient(self) -> BroadcastSubscriber:
        """The subscriber for published messages; kombu's would wait for one."""
        pool = self._create_client(asynchronous=True).connection_pool
        if self.global_keyprefix:
            return PrefixedBroadcastSubscriber(pool, self.global_keyprefix)
        return BroadcastSubscriber(pool)

    def stop_listening(self) -> None:
        """Drop the connection of published messages; it is made again when Redis answers."""
        self._in_listen = False
        subclient = self.__dict__.get("subclient")
        if subclient is not None and subclient.connection is not None:
            subclient.connection.disconnect()

    def forget_connections(self) -> None:
        """Close idle connections, so that the next one asks again who is the master."""
        if self._pool is not None:
            self._pool.disconnect()

    def close(self) -> None:
        """Close; delivered messages that no task works on go back to their queue at once."""
        if not self.closed:
            self.taker.close()
            if self.holder is not None:
                self._waiting.bring_back(self.holder.settle)
        super().close()
        if self.holder is not None and self.keeper is not None:
            self.holder.send_acks()
            self.keeper.release(self.holder)


class _GivenClient:
    """A context manager of a client that is not to be closed."""

    __slots__ = ("client",)

    def __init__(self, client: Any) -> None:
        self.client = client

    def __enter__(self) -> Any:
        return self.client

    def __exit__(self, *exc: object) -> None:
        return None


class SentinelChannel(Channel, kombu_redis.SentinelChannel):  # type: ignore[misc]
    """A channel to ``sentinel://``."""

    chooses = False  # the addresses are the sentinels'
    sentinel_kwargs: dict[str, Any] | None = None
    from_transport_options = (*kombu_redis.SentinelChannel.from_transport_options, *OWN_OPTIONS)

    def _sentinel_managed_pool(self, asynchronous: bool = False) -> Any:
        self.sentinel_kwargs = make_sentinel_options(
            self.sentinel_kwargs, self.socket_timeout, self.socket_connect_timeout
        )
        return super()._sentinel_managed_pool(asynchronous)
