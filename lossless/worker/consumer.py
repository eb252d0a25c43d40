"""The worker's main process side of the queue: no message that arrives is dropped, none ends the worker.

Use, in the settings of any Celery app on Redis:

    worker_consumer = "lossless.worker.consumer:Consumer"
    burial_task = "my.package.bury"     # a task of one argument, a lossless.worker.message_burial.Burial
    worker_soft_shutdown_timeout = 20   # seconds that running tasks have after SIGTERM

Settings: `burial_task` (default "tasks.bury"), `lost_limit` (3: lost processes that make a message poison),
`lost_pauses` ((1, 5): seconds before it runs again), `restored_limit` (6: lost processes and lost workers),
`unknown_for` (3600: seconds that a message waits for a worker that knows its task), `burial_wants` (a function, or its
"module:name", of a message's headers: whether the burial task can make something of it; default: of each),
`unknown_tasks` (what becomes of an unknown task that the burial task does not want: "wait", the default, or "discard",
which is what Celery does: it is acknowledged, and its result is FAILURE, NotRegistered).

What a worker's settings must be, so that what it cannot handle does not get lost (pure).
"""

import math
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from celery import Celery, signals
from celery.app.task import Context
from celery.concurrency import solo
from celery.exceptions import ImproperlyConfigured, NotRegistered
from celery.utils.functional import noop
from celery.utils.imports import symbol_by_name
from celery.utils.log import get_logger
from celery.utils.quorum_queues import detect_quorum_queues
from celery.worker import consumer, state

from lossless.background_thread import copy_shared_set
from lossless.worker import graceful_shutdown, inspect_commands, process_pool
from lossless.worker.delayed_delivery import note_delayed_queues, undo_delay
from lossless.worker.json_body import JSON_TYPE, decode_plain_json
from lossless.worker.large_headers import restore_large_headers
from lossless.worker.message_burial import (
    UNKNOWN_SINCE,
    BurialFailure,
    Reason,
    get_burial_task,
    make_burial,
    make_burial_message,
    make_comeback,
    make_raw_burial,
    read_count,
)
from lossless.worker.message_replacement import MessageReplacement, bury_message, pending_replacements, put_in_place
from lossless.worker.poison_isolation import RESTORED_LIMIT, PoisonIsolation, Suspicion, count_deaths, judge_message
from lossless.worker.process_death import get_memory_kills
from lossless.worker.request import Request
from lossless.worker.run_outcome import REQUEUE_BACKOFF
from lossless.worker.unknown_tasks import UnknownTasks, identify_message, read_unknown_since

logger = get_logger(__name__)

UNKNOWN_FOR = 3_600
#: Headers in which the transport counts the workers that died with a message.
DEATHS = frozenset(("restored", "prefetched"))
#: Seconds until a suspected message is checked again, at least and at most.
AGAIN = (0.2, 0.8)
# A process's sentinel can be readable before its exit code is; Celery looks again after 5 s (asynpool.py).
MAINTAIN_EVERY = 1


class Consumer(consumer.Consumer):
    """A consumer that buries messages that no task can run with, and gives back those it has no time for.

    Raises `ImproperlyConfigured` at the start when the burial task is not registered or its message would not
    be accepted, and for pools that are not supported (lossless/worker/process_pool.py).
    """

    _wakeup: tuple[socket.socket, socket.socket] | None = None
    controller: Any
    hub: Any
    qos: Any
    task_consumer: Any
    task_buckets: Any
    event_dispatcher: Any
    connection_errors: tuple[type[Exception], ...]
    channel_errors: tuple[type[Exception], ...]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if fault := find_settings_fault(self.app):
            raise ImproperlyConfigured(fault)
        process_pool.prepare_pool(self.app, self.pool)
        inspect_commands.register_commands()
        self._burial_wants: Callable[[Any], bool] | None = symbol_by_name(self.app.conf.get("burial_wants"))
        self._unknown_tasks = UnknownTasks(self)
        self._isolation = PoisonIsolation()
        get_memory_kills()  # what was killed before is not of this worker's

    # ---- what arrives

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], None]:
        """Return Celery's handler for arrived messages, behind a guard: a faulty message harms only itself."""
        receive = super().create_task_handler(*args, **options)
        self.task_consumer.channel.on_unreadable = self.on_unreadable

        def on_task_received(message: Any) -> None:
            try:
                restore_large_headers(message)
                if JSON_TYPE in (message.accept or ()):
                    # Celery asks for it, of each message.
                    message._decoded_cache = decode_plain_json(message.body, message.content_type)
                headers = message.headers
                if UNKNOWN_SINCE in headers and headers.get("task") in self.app.tasks:
                    del headers[UNKNOWN_SINCE]  # a retry would carry it on
                if DEATHS.isdisjoint(headers) or not self._hold_back(message):
                    receive(message)
            except MemoryError:
                raise
            except Exception as error:
                self._blame(message, error)

        driver = self.app.connection_for_write().transport.driver_type
        if not detect_quorum_queues(self.app, driver)[0]:
            return on_task_received
        note_delayed_queues(self.app.amqp.queues.values())
        queues = {queue.routing_key: name for name, queue in self.app.amqp.queues.items()}

        def on_delayed_task_received(message: Any) -> None:
            undo_delay(message, queues)
            on_task_received(message)

        return on_delayed_task_received

    def call_soon_ack(self, p: Any, *args: Any, **kwargs: Any) -> Any:
        """Acknowledge, or reject: at once on our transport, which notes it, from any thread, and sends it later.

        Celery leaves it to the next turn of the event loop. Under solo that comes only when all that has arrived has
        run; and a worker that is told to stop gives back, without another turn, what is not acknowledged.
        """
        if not isinstance(self.pool, solo.TaskPool) and not hasattr(p.__self__.channel, "replace"):
            return super().call_soon_ack(p, *args, **kwargs)  # type: ignore[misc]
        result = p(*args, **kwargs)
        if self.hub and threading.current_thread() is not threading.main_thread():
            self.hub.call_soon(noop)  # it may sleep, and there is room for another message now
        return result

    def _blame(self, message: Any, error: Exception) -> None:
        # kombu's Redis transport lists KeyError among its connection errors (kombu/transport/redis.py).
        ours = isinstance(error, self.connection_errors + self.channel_errors) and not isinstance(error, KeyError)
        if ours:
            raise error
        if getattr(message, "replacement", None) is None:
            state.requests.pop(str(message.headers.get("id")), None)
            self._refuse(message, "invalid", error)
        else:
            logger.error("After message %s was replaced: %r", message.delivery_tag, error, exc_info=error)

    def _hold_back(self, message: Any) -> bool:
        """Return whether a suspected message must not run now; it is delayed, or buried as poison."""
        restored, prefetched, lost = (read_count(message.headers, name) for name in ("restored", "prefetched", "lost"))
        deaths = count_deaths(restored, prefetched)
        limit = self.app.conf.get("restored_limit", RESTORED_LIMIT)
        suspicion = judge_message(deaths, lost, math.inf if self._is_burial(message) else limit)
        if suspicion is Suspicion.POISON:
            why = f"{deaths} workers and {lost} single processes died while they held this message"
            self._refuse(message, "poison", WorkersLost(why))
            return True
        if suspicion is Suspicion.NONE or self._isolation.admits(message, deaths):
            return False
        pause = random.uniform(*AGAIN)
        why = f"{deaths} workers died while they held it, and another such runs: again in {pause:.1f} s"
        logger.info("Message %s: %s", message.headers.get("id"), why)
        MessageReplacement(message, make_comeback(message, pause, why)).start()
        return True

    # ---- what cannot be handed to a task

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Bury a message whose body cannot be decoded or decompressed, or whose content type is not accepted."""
        self._refuse(message, "undecodable", exc)

    def on_unknown_message(self, body: Any, message: Any) -> None:
        """Put back or bury a message that is not Celery's."""
        self._refuse(message, "invalid", ValueError("not a Celery message: it has no header `task`"))
        signals.task_rejected.send(sender=self, message=message, exc=None)

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Let a message of an unregistered task wait for a worker that knows it, up to `unknown_for` seconds."""
        name = message.headers.get("task")
        if not self._is_burial(message) and not self._wanted(message) and discards_unknown_tasks(self.app):
            self._discard(message, exc)
            return
        if self._is_burial(message) or not self._wanted(message):
            self._refuse(message, "unknown_task", NotRegistered(name))
            return
        now = self._now(message)
        since = read_unknown_since(message.headers, now)
        left = since + self.app.conf.get("unknown_for", UNKNOWN_FOR) - now
        if left > 0:
            self._unknown_tasks.wait(message, since, now, left)
            return
        self._refuse(message, "unknown_task", NotRegistered(name))
        self._say_unknown(message, exc)

    def _discard(self, message: Any, exc: Exception) -> None:
        """Fail an unregistered task, as Celery does; if its result cannot be written, the message waits."""
        headers, properties = message.headers, message.properties
        name, id_ = headers.get("task"), headers.get("id")
        request = Context(
            id=id_, task=name, root_id=headers.get("root_id"), correlation_id=properties.get("correlation_id"),
            reply_to=properties.get("reply_to"), ignore_result=bool(headers.get("ignore_result")),
        )  # fmt: skip
        try:
            self.app.backend.mark_as_failure(id_, NotRegistered(name), request=request)
        except Exception as error:
            logger.error(
                "The failure of the unknown task %r [%s] could not be written, so it waits: %r", name, id_, error
            )
            self._refuse(message, "unknown_task", NotRegistered(name))
            return
        logger.error(
            "The task %r [%s] is not registered here: it is discarded, and its result is FAILURE (unknown_tasks = "
            "'discard'). Register the task, or correct its name where it is sent.",
            name, id_,
        )  # fmt: skip
        message.reject_log_error(logger, self.connection_errors)
        self._say_unknown(message, exc)

    def _say_unknown(self, message: Any, exc: Exception) -> None:
        name, id_ = message.headers.get("task"), message.headers.get("id")
        if self.event_dispatcher:
            self.event_dispatcher.send("task-failed", uuid=id_, exception=f"NotRegistered({name!r})")
        signals.task_unknown.send(sender=self, message=message, exc=exc, name=name, id=id_)

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Bury a message whose headers or arguments no task can run with."""
        self._refuse(message, "invalid", exc)
        signals.task_rejected.send(sender=self, message=message, exc=exc)

    def on_unreadable(self, delivery_tag: str, raw: bytes, queue: str, exc: Exception) -> None:
        """Bury a queue entry that is no message; lossless.transport calls this as `channel.on_unreadable`.

        kombu's own transport knows no such call: an entry that is not JSON ends its worker.
        """
        if self._burial_wants is not None:
            what = f"an entry of queue {queue} that is no message ({exc!r})"
            self._unknown_tasks.leave(self.task_consumer.channel, delivery_tag, None, what, hash(raw))
            return
        logger.error("An entry of queue %s is no message and is buried: %r", queue, exc)
        burial = make_raw_burial(raw, queue, BurialFailure.of(exc))
        put_in_place(self.task_consumer.channel, delivery_tag, make_burial_message(self.app, burial))

    def _refuse(self, message: Any, reason: Reason, error: Exception) -> None:
        if self._is_burial(message):
            # Another worker may know the burial task; to bury a burial would go on for ever.
            logger.error("Burial %s cannot be run here: %r", message.delivery_tag, error)
            again = read_count(message.headers, "requeued") + 1
            copy = make_comeback(message, REQUEUE_BACKOFF.compute_pause(again - 1), repr(error), requeued=again)
            self._unknown_tasks.come_back(message, copy, again)
        elif not self._wanted(message) and not self._kills(message, reason):
            name = message.headers.get("task") if isinstance(message.headers, dict) else None
            what = f"a message of task {name!r} ({error!r})"
            channel = self.task_consumer.channel
            self._unknown_tasks.leave(channel, message.delivery_tag, name, what, identify_message(message), message)
        else:
            logger.error("Message %s is buried as %s: %r", message.delivery_tag, reason, error)
            bury_message(self.app, message, make_burial(message, reason, BurialFailure.of(error)))

    # ---- what a message is

    def _now(self, message: Any) -> float:
        """Return the broker's time (Unix) if it tells it: one worker's wrong clock must bury nothing."""
        return float(message.channel.now()) if hasattr(message.channel, "now") else time.time()

    def _wanted(self, message: Any) -> bool:
        return self._burial_wants is None or self._burial_wants(message.headers)

    def _kills(self, message: Any, reason: Reason) -> bool:
        """Return whether a refusal is for killing workers: such a message is ours, whatever it carries."""
        return reason == "poison" and message.headers.get("task") in self.app.tasks

    def _is_burial(self, message: Any) -> bool:
        return isinstance(message.headers, dict) and message.headers.get("task") == get_burial_task(self.app)

    # ---- the end

    def register_with_event_loop(self, hub: Any) -> None:
        """Notice dead processes and signals soon.

        A signal handler of Python's does not end the wait in poll (PEP 475), which may last seconds; a byte
        on the wakeup fd does. So SIGTERM is heeded at once.
        """
        super().register_with_event_loop(hub)
        hub.call_repeatedly(MAINTAIN_EVERY, self.pool.maintain_pool)
        hub.call_repeatedly(inspect_commands.TOLD_EVERY, inspect_commands.WaitingTasks(self).tell)
        if threading.current_thread() is not threading.main_thread():
            return
        if self._wakeup is None:
            self._wakeup = socket.socketpair()
            for end in self._wakeup:
                end.setblocking(False)
            signal.set_wakeup_fd(self._wakeup[1].fileno(), warn_on_full_buffer=False)
        hub.add_reader(self._wakeup[0], self._wakeup[0].recv, 4096)

    def on_close(self) -> None:
        """Forget the arrived messages, except those that a process was sent: these run here."""
        reserved = copy_shared_set(state.reserved_requests)
        process_pool.withdraw_waiting(reserved)
        super().on_close()
        sent = [request for request in reserved if request._apply_result is not None and request._apply_result()]
        for request in sent:
            state.reserved_requests.add(request)
            state.requests[request.id] = request

    def stop(self) -> None:
        """Stop consuming, give back what has not started, and end the rest in time.

        `worker_soft_shutdown_timeout` is the time that what runs has left (0: any), here on SIGTERM and
        without REMAP_SIGTERM: Celery heeds it on SIGQUIT alone, and sleeps it out even when nothing runs any
        more. What has not ended by then is stopped, and given back when the channel closes.
        """
        process_pool.withdraw_waiting(copy_shared_set(state.reserved_requests))
        waiting = graceful_shutdown.list_unstarted_requests(self.task_buckets)
        super().stop()
        graceful_shutdown.begin_shutdown(self.timer, self.pool, waiting, self.app.conf.worker_soft_shutdown_timeout)

    def cancel_active_requests(self) -> None:
        """Stop what runs, on SIGQUIT or a second Ctrl-C; under solo it runs to its end, since nothing can stop it.

        Celery tries all the same, and raises NotImplementedError inside the task, which fails with it.
        """
        if not isinstance(self.pool, solo.TaskPool):
            super().cancel_active_requests()

    def shutdown(self) -> None:
        """Close the channel, after a last attempt at pending replacements."""
        for replacement in tuple(pending_replacements):
            replacement.attempt()
        super().shutdown()


class WorkersLost(Exception):
    """The error of a message whose workers died while they held it."""


#: The values of the setting `unknown_tasks`.
WAIT_FOR_WORKER, DISCARD_TASK = "wait", "discard"


def find_settings_fault(app: Celery) -> str | None:
    """Return why burials would get lost with an app's settings, or None."""
    name = get_burial_task(app)
    if name not in app.tasks:
        return (
            f"the task {name!r} (setting burial_task) is not registered: "
            "what cannot be handled would have nowhere to go"
        )
    task: Any = app.tasks[name]
    if not task.acks_late or not issubclass(symbol_by_name(task.Request), Request):
        return (
            f"the task {name!r} (setting burial_task) needs acks_late and the Request of lossless.worker.request: "
            "a burial whose process dies would be lost"
        )
    if not {"json", "application/json"} & set(app.conf.accept_content):
        return "accept_content must include json, which burials are written in"
    if (chosen := app.conf.get("unknown_tasks", WAIT_FOR_WORKER)) not in (WAIT_FOR_WORKER, DISCARD_TASK):
        return f"unknown_tasks is {chosen!r}: it must be {WAIT_FOR_WORKER!r} or {DISCARD_TASK!r}"
    return None


def discards_unknown_tasks(app: Celery) -> bool:
    """Return whether unregistered tasks are discarded as failures, if the burial task does not want them."""
    return bool(app.conf.get("unknown_tasks", WAIT_FOR_WORKER) == DISCARD_TASK)
