"""Crashes of a handler everywhere: its process is killed at each point, and the delivery runs again as a worker would
run it.

A worker runs the handler, publishes what it sends, waits for Kafka's acknowledgement, removes that from the handler's
outbox, and marks the delivery done. If the process dies before the mark, all of it runs again, in a new process. What
fails in a run is retried, as the handler's policy says.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any, Final

from bridge.formats.delivery import Attempts, Delivery, Header, Message
from bridge.formats.failure import cut
from tasks.declaration.handler_task import HandlerTask
from tasks.errors import RetryLater
from tasks.execution.outgoing_publication import UnsentMessages
from tasks.testing.crash_points import CrashPoint, CrashTracer
from tasks.testing.crash_report import DELIVERY, MESSAGES_TO, CrashExperiment, CrashReport
from tasks.testing.effect_comparison import EffectFault, ExpectedEffects
from tasks.testing.fake_service import FakeService, SurvivingLog
from tasks.testing.forked_run import ForkedRunner, Tell
from tasks.testing.handler_outcome import (
    Outcome,
    check_handler,
    make_message,
    refuse_loop,
    run_bulk,
    run_message,
)

#: The most runs of a delivery whose policy retries it for ever.
MOST_RUNS: Final = 20
#: The runs without a crash, by which it is known what changes by itself.
QUIET_RUNS: Final = 2


def crash_everywhere(
    handler: HandlerTask[..., Any],
    value: Any,
    *,
    effects: Callable[[], object] | None = None,
    reset: Callable[[], object] | None = None,
    services: Iterable[FakeService] = (),
    key: bytes | None = None,
    headers: tuple[Header, ...] = (),
    max_points: int = 500,
    time_limit: float = 60.0,
) -> CrashReport:
    """Kill a handler at every point of its run, redeliver, and return which effects doubled or were lost.

    Each run is a forked process, and each crash a real one (SIGKILL). Programs and processes that a run has started
    end with it. The points are each line of the handler's function, each SQL statement, commit, request, answer,
    started program and written file, `settle_with` and `publish`, each call of a `FakeService`, and each step by which
    a worker publishes and marks.

    Parameters:
        handler: what `@handler` made.
        value: as for `outcome`; of a bulk handler a list of values.
        effects: returns what the handler has changed outside of the process: a mapping of names to rows, texts or
            numbers. Leave out times and generated ids.
        reset: undoes all of that; called before each experiment. Needed with `effects`.
        services: those that the handler calls; their calls are effects, and they are reset.
        key, headers: of the record.
        max_points: the most points; each takes two processes.
        time_limit: seconds for one process.

    Raises:
        TypeError: the first argument is no handler, its codec reads bytes and the value is none, or there is nothing by
            which effects are seen.
        ValueError: the handler fails or has no effects without a crash, its effects differ from run to run, `reset`
            leaves some, or there are too many points.
        RuntimeError: a process cannot be forked here, or something besides the handler failed in one.
        TimeoutError: a run did not end in time.
    """
    check_handler(handler, False)
    refuse_loop(handler)
    if effects is not None and reset is None:
        raise TypeError("crash_everywhere: give reset= with effects=: each crash needs the world as it was before.")
    values = [*value] if handler.bulk is not None and isinstance(value, list | tuple) else [value]
    messages = [make_message(handler, each, 1, key, headers) for each in values]
    world = CrashWorld(effects, reset, tuple(services))
    return CrashSearch(handler, messages, world, ForkedRunner(time_limit), max_points).run()


class CrashWorld:
    """All that a handler's effects are seen in: what the test shows, its services, and Kafka."""

    def __init__(
        self,
        effects: Callable[[], object] | None,
        reset: Callable[[], object] | None,
        services: Sequence[FakeService],
    ) -> None:
        self._effects, self._reset, self.services = effects, reset, services
        #: The messages that Kafka has: topic, id, key and value.
        self.kafka = SurvivingLog()

    def reset(self) -> None:
        """Bring everything back to what it was."""
        if self._reset is not None:
            self._reset()
        for service in self.services:
            service.reset()
        self.kafka.clear()

    def look(self) -> dict[str, Any]:
        """Return all that is seen, by name."""
        shown = {} if self._effects is None else self._effects()
        seen: dict[str, Any] = {**shown} if isinstance(shown, Mapping) else {"effects": shown}
        seen |= {service.name: service.calls for service in self.services}
        # A receiver drops a message whose id it has seen.
        known: dict[tuple[str, str], Any] = {}
        for topic, name, key, value in self.kafka.read():
            known.setdefault((topic, name), (key, value))
        for (topic, _), content in known.items():
            seen.setdefault(f"{MESSAGES_TO}{topic}", []).append(content)
        return seen


class CrashSearch:
    """The experiments on one handler and one record, or one list of records.

    Parameters:
        most: the most crash points.
    """

    def __init__(
        self,
        handler: HandlerTask[..., Any],
        messages: Sequence[Message],
        world: CrashWorld,
        runner: ForkedRunner,
        most: int,
    ) -> None:
        self._handler, self._messages, self._world = handler, messages, world
        self._runner, self._most = runner, most

    def run(self) -> CrashReport:
        """Run all experiments, and return their report."""
        self._world.reset()
        before = self._world.look()
        seen, count, settles = [], 0, False
        for _ in range(QUIET_RUNS):
            self._world.reset()
            if (left := self._world.look()) != before:
                raise ValueError(f"reset() does not bring back what effects() shows: {before!r} became {left!r}.")
            end = self._run_quietly()
            seen.append(self._world.look())
            count, settles = end["points"], end["settles"]
        if count > self._most:
            raise ValueError(
                f"{self._handler.name} has {count:,} crash points with this record, and max_points is "
                f"{self._most:,}: give it a smaller record, or more points."
            )
        expected = ExpectedEffects(before, seen)
        experiments = [self._crash(number, expected) for number in range(1, count + 1)]
        function: Any = self._handler.run
        return CrashReport(
            self._handler.name,
            getattr(getattr(function, "__code__", None), "co_filename", ""),
            tuple(experiment for experiment in experiments if experiment is not None),
            settles,
            frozenset(service.name for service in self._world.services),
        )

    def _run_quietly(self) -> dict[str, Any]:
        run = DeliveryRun(self._handler, self._make_messages(), self._world.kafka)
        end: dict[str, Any] = self._runner.run(lambda tell: run.run(tell, None))[-1]
        if end["faults"]:
            raise ValueError(f"{self._handler.name} fails without a crash, too: {end['faults'][0]}")
        return end

    def _crash(self, number: int, expected: ExpectedEffects) -> CrashExperiment | None:
        """Kill a run at one point, redeliver, and return what is different; `None`: it ended before that point."""
        self._world.reset()
        messages = self._make_messages()
        first = DeliveryRun(self._handler, messages, self._world.kafka)
        told = self._runner.run(lambda tell: first.run(tell, number))[-1]
        if "point" not in told:
            return None
        # A bulk handler's messages run alone after a loss (tasks/execution/batch_run.py).
        second = DeliveryRun(self._handler, messages, self._world.kafka, lost=1)
        end = self._runner.run(lambda tell: second.run(tell, None))[-1]
        faults = [EffectFault(DELIVERY, "unfinished", fault) for fault in end["faults"]]
        faults += expected.compare(self._world.look())
        return CrashExperiment(CrashPoint(**told["point"]), tuple(faults))

    def _make_messages(self) -> list[Message]:
        """Return the record as another Kafka cluster has it: marks of earlier experiments are not its own."""
        origin = f"{uuid.uuid4().hex} tests tests"
        return [replace(message, origin=origin) for message in self._messages]


class DeliveryRun:
    """The run of a record's delivery in a process, up to its mark in the ledger.

    Parameters:
        messages: one, or several of a bulk handler.
        kafka: takes what the handler publishes.
        lost: how many processes died with the delivery before.
    """

    def __init__(
        self, handler: HandlerTask[..., Any], messages: Sequence[Message], kafka: SurvivingLog, lost: int = 0
    ) -> None:
        self._handler, self._messages, self._kafka, self._lost = handler, messages, kafka, lost

    def run(self, tell: Tell, kill_at: int | None) -> None:
        """Run the delivery to its end, or up to a crash point, and tell which.

        Parameters:
            kill_at: the number of that point.
        """
        tracer = CrashTracer(self._handler.run, kill_at, lambda point: tell({"point": asdict(point)}))
        faults = []
        together = len(self._messages) > 1 and not self._lost
        # A run that nobody kills needs no points.
        with nullcontext() if self._lost else tracer:
            parts = [[*self._messages]] if together else [[message] for message in self._messages]
            while parts:
                part = parts.pop(0)
                outcomes = self._run_once(part, tracer)
                self._publish(
                    [m for m, outcome in zip(part, outcomes, strict=True) if outcome.becomes == "done"], tracer
                )
                for message, outcome in zip(part, outcomes, strict=True):
                    if outcome.becomes == "retry" and message.attempt < MOST_RUNS:
                        parts.append([_after(message, outcome)])
                    elif outcome.becomes != "done":
                        faults.append(f"{outcome} after {message.attempt} runs: {_tell_error(outcome)}")
        tell({"points": tracer.count, "settles": tracer.settles, "faults": faults})

    def _run_once(self, part: list[Message], tracer: CrashTracer) -> list[Outcome]:
        try:
            if self._lost and part[0].attempts == Attempts():
                lost = Attempts(lost=self._lost)
                part[:] = [replace(message, attempt=1 + self._lost, attempts=lost) for message in part]
            if self._handler.bulk is not None:
                return run_bulk(self._handler, [*part], part, 0.0)
            return [run_message(self._handler, part[0])]
        finally:
            tracer.leave_handler()

    def _publish(self, done: list[Message], tracer: CrashTracer) -> None:
        """Publish what the handler sends, as `tasks/execution/outgoing_publication.py` does, and mark."""
        if not done:
            return
        tracer.reach("its messages are collected")
        for message in done:
            unsent = UnsentMessages.from_delivery(Delivery(message, self._handler.name))
            if unsent is None:
                continue
            for outgoing in unsent.outgoing:
                tracer.reach(f"Kafka has the message to {outgoing.topic}")
                self._kafka.append([outgoing.topic, outgoing.id, _decode(outgoing.key), _decode(outgoing.value)])
            outbox = message.outbox
            if outbox is not None and outbox.home is not None:
                tracer.reach("its messages are removed from the outbox")
                outbox.published()
        tracer.reach("the ledger has the mark")


def _after(message: Message, outcome: Outcome) -> Message:
    """Return the message for the next run."""
    spent = not isinstance(outcome.error, RetryLater)
    attempts = message.attempts.plus(failed=1) if spent else message.attempts.plus(postponed=1)
    return replace(message, attempt=message.attempt + 1, attempts=attempts)


def _tell_error(outcome: Outcome) -> str:
    return cut(f"{type(outcome.error).__name__}: {outcome.error}".partition("\n")[0], 200)


def _decode(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")
