"""The Prometheus metrics of a bridge.

A worker's are in tasks/worker/worker_metrics.py, a recorder's in deadletters/recorder/dead_letter_metrics.py.
"""

import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values

from bridge.formats.delivery_identity import Place
from bridge.formats.halt_scope import HaltScope

#: The labels of metrics of each partition.
PARTITION_LABELS: Final = ("topic", "partition")


class BridgeMetrics:
    """The bridge's metrics in their own registry, so that tests can run several in a process."""

    def __init__(self) -> None:
        # In memory, even if the environment has PROMETHEUS_MULTIPROC_DIR for workers: a bridge is one process, and a
        # missing folder must not end it.
        values.ValueClass = values.MutexValue
        self.registry = CollectorRegistry()
        self._paused: dict[tuple[str, int, str], float] = {}
        self._lags: dict[Place, int] = {}
        #: By partition, the labels of its series of fates.
        self._fate_labels: dict[Place, set[tuple[str, str]]] = {}
        self._halted: set[str] = set()
        self._held: set[tuple[str, str]] = set()
        self._policies: set[str] = set()
        self._counter = partial(Counter, registry=self.registry)
        self._gauge = partial(Gauge, registry=self.registry)
        self._histogram = partial(Histogram, registry=self.registry)
        self._of_partitions()
        self._of_queues()
        self._of_handoff()
        self._of_fates()
        self._of_the_group()

    def _of_partitions(self) -> None:
        """Create the metrics of reading and committing partitions."""
        self.consumed = self._counter("bridge_records_consumed", "Records read.", PARTITION_LABELS)
        self.handed_off = self._counter(
            "bridge_deliveries_handed_off", "Deliveries that the Celery broker has confirmed.", ["topic", "handler"]
        )
        self.committed = self._gauge("bridge_committed_offset", "The committed offset.", PARTITION_LABELS)
        self.parked = self._gauge(
            "bridge_parked_records",
            "Records of a retry or replay topic that are not settled, in the partitions that this bridge has.",
            ["topic", "tier"],
        )
        self.parked_late = self._gauge(
            "bridge_parked_late_seconds",
            "How long the first record of a retry or replay topic has been due that is not handed off; 0: none is.",
            ["topic", "tier"],
        )
        self.lag = self._gauge(
            "bridge_lag_records", "Records between the committed offset and the end.", PARTITION_LABELS
        )
        self.paused = self._gauge("bridge_partition_paused", "1 while paused.", (*PARTITION_LABELS, "reason"))
        self.paused_since = self._gauge(
            "bridge_partition_paused_since_seconds",
            "Unix time since when a partition is paused.",
            (*PARTITION_LABELS, "reason"),
        )

    def _of_queues(self) -> None:
        """Create the metrics of queues and workers."""
        self.queue_messages = self._gauge("bridge_queue_messages", "Messages that wait in a Celery queue.", ["queue"])
        self.retries = self._gauge(
            "bridge_queue_retries", "Messages of a Celery queue that wait in the broker for their due time.", ["queue"]
        )
        self.backlog = self._gauge(
            "bridge_backlog_deliveries",
            "Deliveries of a queue to be run: ready in the broker, taken by workers, due in Kafka; of the whole group.",
            ["queue", "state"],
        )
        self.backlog_seconds = self._gauge(
            "bridge_backlog_seconds",
            "Seconds that one process of a worker needs for them; absent while that was never measured.",
            ["queue", "state"],
        )
        self.workers = self._gauge("bridge_workers", "Living workers that consume a Celery queue.", ["queue"])
        self.oldest = self._gauge(
            "bridge_oldest_delivery_seconds",
            "How long the oldest delivery has been in flight: handed off, not settled and not waiting for its retry.",
            ["topic", "handler"],
        )
        self.batch_size = self._gauge(
            "bridge_batch_size",
            "How many deliveries a message to a handler may carry now; the reason is in the status.",
            ["handler"],
        )

    def _of_handoff(self) -> None:
        """Create the metrics of hand-offs and of records that are not handed off."""
        self.handoff_seconds = self._histogram(
            "bridge_handoff_seconds",
            "From a record read to its deliveries confirmed by the Celery broker.",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
        )
        self.handoff_failures = self._counter("bridge_handoff_failures", "Hand-offs that the broker did not confirm.")
        self.expired = self._counter(
            "bridge_expired_records",
            "Records that Kafka's retention dropped before they were handled.",
            PARTITION_LABELS,
        )
        self.strange = self._counter(
            "bridge_strange_records",
            "Records of retry and replay topics that are no deliveries of this group, and were left alone.",
            ["topic"],
        )
        self.log_changes = self._counter(
            "bridge_log_changes",
            "Recreated topics, truncated logs, and deleted retry and replay topics.",
            (*PARTITION_LABELS, "what"),
        )

    def _of_fates(self) -> None:
        """Create the metrics of the ledger."""
        self.undone = self._counter(
            "bridge_undone_deliveries", "Deliveries that were done and run again, because the ledger lost their fate."
        )
        self.stuck = self._counter(
            "bridge_stuck_deliveries", "Deliveries handed off long ago whose task was lost, handed off again."
        )
        self.fates = self._gauge(
            "bridge_fates",
            "Offsets by fate, of the last 262,144 before the committed one and all after it.",
            (*PARTITION_LABELS, "handler", "fate"),
        )
        self.unaccounted = self._gauge(
            "bridge_unaccounted",
            "Committed offsets of that range whose fate is open, or was lost with the ledger: must be 0.",
            (*PARTITION_LABELS, "handler"),
        )

    def _of_the_group(self) -> None:
        """Create the metrics of decisions and of the bridge's state."""
        self.breaker_open = self._gauge(
            "bridge_breaker_open", "1 while the circuit breaker of a dependency is open or half-open.", ["dependency"]
        )
        self.limit_running = self._gauge(
            "bridge_limit_running", "Deliveries that run now under a limit with a concurrency.", ["limit"]
        )
        self.limit_waiting = self._gauge(
            "bridge_limit_waiting", "Deliveries that wait for their turn in a limit, about.", ["limit"]
        )
        self.limit_wait_seconds = self._gauge(
            "bridge_limit_wait_seconds", "Seconds until all that wait for a limit have started, about.", ["limit"]
        )
        self.halted = self._gauge(
            "bridge_halted", "1 while a topic's consumption is halted, by a person or by StopConsuming.", ["topic"]
        )
        self.halted_since = self._gauge(
            "bridge_halted_since_seconds", "Unix time since when a topic's consumption is halted.", ["topic"]
        )
        self.handler_halted = self._gauge(
            "bridge_handler_halted", "1 while a handler is halted on a topic.", ["topic", "handler"]
        )
        self.keys_halted = self._gauge(
            "bridge_keys_halted", "Keys of a handler that are halted on a topic.", ["topic", "handler"]
        )
        self.held_messages = self._gauge(
            "bridge_held_messages",
            "Celery messages that wait for a halted handler or its halted keys.",
            ["topic", "handler"],
        )
        self.dead_holds = self._gauge(
            "bridge_dead_holds",
            "Dead deliveries that hold those behind them in their order (after_dead).",
            ["topic", "handler"],
        )
        self.dead_holds_waiting = self._gauge(
            "bridge_dead_holds_waiting",
            "Deliveries that the bridge has read and that wait behind a dead one in their order.",
            ["topic", "handler"],
        )
        self.policy_changed = self._gauge(
            "bridge_policy_changed",
            "1 while a handler's policy differs from its code's by a person's changes.",
            ["handler"],
        )
        self.ready = self._gauge("bridge_ready", "1 while records are consumed and handed off.")
        self.problems = self._gauge(
            "bridge_problems",
            "Sentences of a problem in the status, for problems that a running bridge detects itself.",
            ["problem"],
        )

    def expect(self, places: Iterable[Place]) -> None:
        """Show the counters of these partitions at 0: `increase()` misses a series that begins with 1."""
        for topic, partition in places:
            self.expired.labels(topic, partition)
            for what in ("made anew", "went back", "deleted"):
                self.log_changes.labels(topic, partition, what)

    def show_parked(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Show the number of unsettled records in each source's retry and replay topics."""
        self.parked.clear()
        for labels, count in counts.items():
            self.parked.labels(*labels).set(count)

    def show_parked_late(self, late: Mapping[tuple[str, str], float]) -> None:
        """Show how long the first record of each retry and replay topic has been due without being handed off."""
        self.parked_late.clear()
        for labels, seconds in late.items():
            self.parked_late.labels(*labels).set(seconds)

    def show_lag(self, place: Place, records: int) -> None:
        """Show the consumer lag of a partition."""
        # Most partitions of most bridges have the lag that they had a second ago.
        if self._lags.get(place) != records:
            self.lag.labels(*place).set(records)
            self._lags[place] = records

    def sum_lag(self) -> dict[str, int]:
        """Return the shown consumer lag by topic."""
        sums: dict[str, int] = {}
        for (topic, _), records in self._lags.items():
            sums[topic] = sums.get(topic, 0) + records
        return sums

    def show_paused(self, paused: Mapping[Place, str]) -> None:
        """Show the paused partitions, with reason and time."""
        now, known = time.time(), self._paused
        self._paused = {(*place, reason): known.get((*place, reason), now) for place, reason in paused.items()}
        # Only what changed: while partitions start, one after another resumes, and hundreds stay paused.
        for labels in known.keys() - self._paused.keys():
            self.paused.remove(*labels)
            self.paused_since.remove(*labels)
        for labels in self._paused.keys() - known.keys():
            self.paused.labels(*labels).set(1)
            self.paused_since.labels(*labels).set(self._paused[labels])

    def show_halted(self, since: Mapping[str, float], all_topics: Iterable[str] = ()) -> None:
        """Show the halted topics with their time (Unix time), and 0 for all others."""
        for topic in {*since, *all_topics, *self._halted}:
            self.halted.labels(topic).set(1 if topic in since else 0)
        self.halted_since.clear()
        for topic, at in since.items():
            self.halted_since.labels(topic).set(at)
        self._halted |= since.keys()

    def show_small_halts(self, held: Mapping[HaltScope, int], all_handlers: Iterable[tuple[str, str]] = ()) -> None:
        """Show the halted handlers, how many keys are halted, and the messages that wait for them; 0 for others."""
        found = {(scope.topic, scope.handler) for scope in held}
        for topic, handler in {*found, *all_handlers, *self._held}:
            of = [scope for scope in held if (scope.topic, scope.handler) == (topic, handler)]
            self.handler_halted.labels(topic, handler).set(int(any(scope.key is None for scope in of)))
            self.keys_halted.labels(topic, handler).set(sum(scope.key is not None for scope in of))
            self.held_messages.labels(topic, handler).set(sum(held[scope] for scope in of))
        self._held |= found

    def show_dead_holds(self, holds: Iterable[tuple[str, str, int, int]]) -> None:
        """Show by topic and handler the dead deliveries that hold others, and those others."""
        self.dead_holds.clear()
        self.dead_holds_waiting.clear()
        for topic, handler, dead, behind in holds:
            self.dead_holds.labels(topic, handler).inc(dead)
            self.dead_holds_waiting.labels(topic, handler).inc(behind)

    def show_policies(self, handlers: Iterable[str], all_handlers: Iterable[str] = ()) -> None:
        """Show the handlers whose policy differs from the code's, and 0 for all others."""
        changed = set(handlers)
        for handler in {*changed, *all_handlers, *self._policies}:
            self.policy_changed.labels(handler).set(1 if handler in changed else 0)
        self._policies |= changed

    def show_lengths(self, lengths: Mapping[str, int]) -> None:
        """Show how many messages wait in each queue."""
        for queue, length in lengths.items():
            self.queue_messages.labels(queue).set(length)

    def show_retries(self, waiting: Mapping[str, int]) -> None:
        """Show how many messages of each queue wait for their due time."""
        for queue, count in waiting.items():
            self.retries.labels(queue).set(count)

    def show_backlog(self, found: Mapping[tuple[str, str], tuple[float, float | None]]) -> None:
        """Show the backlog by queue and state: deliveries, and seconds if they are known."""
        for labels, (deliveries, seconds) in found.items():
            self.backlog.labels(*labels).set(round(deliveries))
            if seconds is not None:
                self.backlog_seconds.labels(*labels).set(seconds)
            else:
                self.backlog_seconds.remove_by_labels(dict(zip(("queue", "state"), labels, strict=True)))

    def show_workers(self, workers: Mapping[str, int]) -> None:
        """Show how many living workers consume each queue."""
        for queue, count in workers.items():
            self.workers.labels(queue).set(count)

    def show_batches(self, sizes: Mapping[str, int]) -> None:
        """Show how many deliveries a message to each handler may carry."""
        for handler, size in sizes.items():
            self.batch_size.labels(handler).set(size)

    def show_oldest(self, ages: Mapping[tuple[str, str], float]) -> None:
        """Show how long deliveries have been in flight, by topic and handler."""
        for labels, seconds in ages.items():
            self.oldest.labels(*labels).set(seconds)

    def show_problems(self, counts: Mapping[str, int]) -> None:
        """Show how often the status reports each problem, by identifier."""
        for identifier, count in counts.items():
            self.problems.labels(identifier).set(count)

    def show_fates(self, place: Place, handler: str, fates: Mapping[str, int], unaccounted: int) -> None:
        """Show the number of deliveries of each fate for one handler and partition."""
        for fate, count in fates.items():
            self.fates.labels(*place, handler, fate).set(count)
            self._fate_labels.setdefault(place, set()).add((handler, fate))
        self.unaccounted.labels(*place, handler).set(unaccounted)

    def forget(self, places: Iterable[Place]) -> None:
        """Remove the metrics of partitions that another bridge has now."""
        # Label by label: a search through all series for each of a thousand partitions took seconds in a rebalance.
        for place in places:
            self.committed.remove(*place)
            self.lag.remove(*place)
            self._lags.pop(place, None)
            self.hide_fates(place)

    def hide_fates(self, place: Place) -> None:
        """Remove the fates of a partition: it has no records, or another bridge has it now."""
        for handler, fate in self._fate_labels.pop(place, ()):
            self.fates.remove(*place, handler, fate)
            self.unaccounted.remove(*place, handler)
