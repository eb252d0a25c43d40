"""The announcement of a bridge in Redis: its state, and the workers and backlog that it sees.

Nothing that a bridge does depends on it.
"""

import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.batch_size_rule import BatchSize
from bridge.errors import LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.handler_routes import Routes
from bridge.jobs.backlog import BacklogGrowth, LagWatch, QueueCounts, add_up_counts, backlog_to_data, measure_backlogs
from bridge.jobs.backlog_history import BacklogHistory
from bridge.jobs.deployment_problems import (
    describe_foreign_member,
    find_divided_topics,
    find_other_applications,
    find_unconsumed_queues,
    find_unknown_handlers,
)
from bridge.jobs.group_facts import GroupFacts, HandlerFacts
from bridge.jobs.handler_health import (
    find_hung_handlers,
    find_lost_bridges,
    find_skewed_clocks,
    find_slow_workers,
)
from bridge.jobs.open_transactions import OpenTransaction, find_held_back_topics
from bridge.ledger import Account, Accounts, Ledger
from bridge.ledger.attempt_statistics import read_outcomes
from bridge.ledger.clock_skew import ClockSkew
from bridge.ledger.group_members import ANNOUNCE_EVERY, GroupMembers, make_member_name, note_first_observation
from bridge.ledger.handler_costs import HandlerCosts
from bridge.ledger.handoff_times import OldestDeliveryFinder
from bridge.partitions.partition import Partition
from bridge.problems.bridge_problem_rows import BRIDGE_LOST, GROUP_DIVIDED
from bridge.problems.problem import Problem
from bridge.problems.problem_row import ProblemRow
from bridge.problems.topic_problem_rows import TRANSACTION_OPEN
from bridge.problems.worker_problem_rows import (
    CLOCK_SKEW,
    HANDLER_UNKNOWN,
    HANDLERS_HANG,
    WORKERS_DOWN,
    WORKERS_TOO_SLOW,
)
from bridge.settings.installed_versions import read_versions
from lossless.background_thread import BackgroundThread

logger = logging.getLogger(__name__)

#: Announcements between two polls of workers and of deliveries in flight.
POLL_EVERY: Final = 3
#: Seconds between two searches for hot keys, which go over every waiting key.
HOT_KEYS_EVERY: Final = 10.0
#: Seconds without news from the loop after which it counts as stuck, and nothing more is announced.
STALE_AFTER: Final = 60.0
#: Seconds that taking the announcement back may take.
LEAVE_WITHIN: Final = 1.0

#: The problems that a running bridge finds by itself, and shows on `/metrics`.
SEEN_BY_BRIDGES: Final[tuple[ProblemRow, ...]] = (
    *(WORKERS_DOWN, HANDLER_UNKNOWN, HANDLERS_HANG, WORKERS_TOO_SLOW, CLOCK_SKEW),
    *(BRIDGE_LOST, TRANSACTION_OPEN, GROUP_DIVIDED),
)

Key = TypeVar("Key")


class StartTimes:
    """The times (Unix) since which things have been so, as long as each call finds them again."""

    def __init__(self) -> None:
        self._first: dict[Any, float] = {}

    def keep(self, found: Iterable[Key]) -> dict[Key, float]:
        """Take in what is so now, and forget the rest; return since when each has been so."""
        now = time.time()
        known, self._first = self._first, {}
        times = {key: known.get(key, now) for key in found}
        self._first = {**times}
        return times


class BridgeAnnouncement:
    """The announcement of this bridge, written by a thread, so that a frozen Redis does not stop the loop.

    Parameters:
        here: the ledger, without the id of a Kafka cluster.
        app: the Celery app, as `-A` names it.
    """

    def __init__(self, here: Ledger, app: str, routes: Routes, metrics: BridgeMetrics) -> None:
        self._group, self._app, self._routes, self._metrics = here.group, app, routes, metrics
        self._members, self._workers = GroupMembers(here, "bridges"), GroupMembers(here, "workers")
        self._ledger: Ledger | None = None
        self._finder: OldestDeliveryFinder | None = None
        self._member = make_member_name()
        self._started = self._assigned_since = time.time()
        self._paused, self._obstacles, self._waiting = StartTimes(), StartTimes(), StartTimes()
        self._unaccounted, self._unmade = StartTimes(), StartTimes()
        self._dead_holds = StartTimes()
        self._hot, self._hot_at = StartTimes(), float("-inf")
        self._hot_keys: list[dict[str, Any]] = []
        self._lag_watch, self._growth = LagWatch(), BacklogGrowth()
        self._skew, self._base_ledger = ClockSkew(here), here
        self._history = BacklogHistory(here, self._member)
        self._shown_growth: dict[str, Any] = {}
        self._costs: dict[str, float] = {}
        self._state: dict[str, Any] = {}
        self._accounts: list[Account] = []
        self._oldest: Mapping[tuple[str, str], float] = {}
        self._unhandled: frozenset[str] = frozenset()
        self._divided: frozenset[str] = frozenset()
        self._others: frozenset[str] = frozenset()
        self._foreign: Sequence[str] = ()
        self._ready: QueueCounts = {}
        self._backlog: dict[str, Any] = {}
        self._taken_in = 0.0
        self._thread = BackgroundThread("announcement", self._run)

    # For the loop

    def now(self) -> float:
        """Return the time (Unix) by Redis's clock, as far as it is known."""
        return self._skew.now()

    def set_ledger(self, ledger: Ledger) -> None:
        """Take in the ledger of the cluster, which knows the deliveries in flight."""
        self._ledger, self._finder = ledger, OldestDeliveryFinder(ledger)

    def set_foreign_topics(self, topics: Sequence[str]) -> None:
        """Take in the topics that another application in the group consumes."""
        self._foreign = topics

    def update_state(
        self,
        obstacles: list[str],
        partitions: Sequence[Partition] = (),
        assigned: Iterable[Place] = (),
        paused: Mapping[Place, str] = MappingProxyType({}),
        unaccounted: Mapping[tuple[str, int, str], int] = MappingProxyType({}),
        batches: Mapping[str, BatchSize] = MappingProxyType({}),
        unread: Mapping[Place, int] = MappingProxyType({}),
        *,
        busy: Sequence[Partition] = (),
        due: QueueCounts = MappingProxyType({}),
        ready: QueueCounts = MappingProxyType({}),
        lag: Mapping[str, int] = MappingProxyType({}),
        unmade: Iterable[str] = (),
        open_transactions: Iterable[OpenTransaction] = (),
    ) -> None:
        """Take in the state of this bridge for `bridge status`; the thread announces it.

        Parameters:
            partitions: the partitions that have begun.
            unaccounted: committed offsets whose fate is open, by topic, partition and handler.
            batches: batch sizes by handler.
            unread: records of each partition that were not read yet.
            busy: the partitions that hold something: only these have deliveries that wait, and hot keys.
            due, ready: deliveries by queue and handler that wait in this bridge's partitions, and in the broker.
            lag: the consumer lag of this bridge's partitions, by topic.
            unmade: topics of the group that Kafka refused to create, a sentence each.
            open_transactions: the transactions that hold back partitions of this bridge.
        """
        # The words of an error may change from try to try; its subject does not.
        since = self._obstacles.keep(text.partition(":")[0] for text in obstacles)
        refused = list(unmade)
        refused_since = self._unmade.keep(text.partition(":")[0] for text in refused)
        pauses = self._paused.keep(paused)
        lost = self._unaccounted.keep(unaccounted)
        self._accounts = [account for partition in partitions for account in partition.accounts.values()]
        places = sorted(map(_format_place, assigned))
        # After an outage partitions are assigned one after another: an unassigned one is no problem yet.
        if obstacles or places != self._state.get("assigned"):
            self._assigned_since = time.time()
        self._state = {
            "assigned_since": self._assigned_since,
            "ready": {queue: dict(counts) for queue, counts in ready.items()},
            "cluster": self._ledger.cluster if self._ledger else None,
            "versions": read_versions(),
            "started": self._started,
            "topics": self._routes.topics,
            "handlers": sorted(handler.name for handler in self._routes),
            "routes": {topic: [handler.name for handler in self._routes.of(topic)] for topic in self._routes.topics},
            "assigned": places,
            "paused": {_format_place(place): why for place, why in sorted(paused.items())},
            "paused_since": {_format_place(place): at for place, at in sorted(pauses.items())},
            "obstacles": obstacles,
            "obstacles_since": [since[text.partition(":")[0]] for text in obstacles],
            "waiting": self._find_waiting(busy),
            "hot_keys": self._find_hot_keys(busy),
            "dead_holds": self._find_dead_holds(busy),
            # A plain dict, since JSON knows no other mapping.
            "due": {queue: dict(handlers) for queue, handlers in due.items()},
            "lag": dict(lag),
            "unmade": refused,
            "unmade_since": [refused_since[text.partition(":")[0]] for text in refused],
            "open_transactions": [each.to_data() for each in open_transactions],
            "batches": {handler: {"size": size.number, "why": size.why} for handler, size in sorted(batches.items())},
            "behind": [
                {"topic": topic, "partition": number, "count": lag.records, "since": lag.since}
                for (topic, number), lag in sorted(self._lag_watch.add_counts(unread, time.time()).items())
            ],
            "unaccounted": [
                {"topic": topic, "partition": number, "handler": handler, "count": count, "since": lost[where]}
                for where, count in sorted(unaccounted.items())
                for topic, number, handler in [where]
            ],
        }
        self._ready = ready
        self._taken_in = time.monotonic()
        if not self._thread.is_alive() and not self._thread.stopping.is_set():
            self._thread.start()

    def leave(self) -> None:
        """Withdraw the announcement; without Redis it expires by itself."""
        self._thread.stop(LEAVE_WITHIN)

    # The thread

    def _run(self) -> None:
        turn = 0
        while not self._thread.stopping.is_set():
            # A bridge whose loop is stuck is not alive.
            if time.monotonic() - self._taken_in < STALE_AFTER:
                self._quietly(self._announce)
            self._quietly(self._poll_backlog)
            if turn % POLL_EVERY == 0:
                self._quietly(self._poll_workers)
            turn += 1
            self._thread.stopping.wait(ANNOUNCE_EVERY)
        self._quietly(lambda: self._members.leave(self._member))

    def _quietly(self, act: Callable[[], None]) -> None:
        try:
            act()
        except LedgerUnavailable as error:
            logger.debug("%s", error)
        except Exception:
            logger.exception("the state of this bridge could not be announced.")

    def _announce(self) -> None:
        ages = [
            {"topic": topic, "handler": handler, "seconds": round(seconds, 1)}
            for (topic, handler), seconds in sorted(self._oldest.items())
        ]
        self._members.announce(
            self._member,
            {
                **self._state,
                "open_transactions": self._open_transactions(),
                "dead_holds": self._note_dead_holds(),
                "oldest": ages,
                "backlog": self._backlog,
                "backlog_growth": self._shown_growth,
                "costs": self._costs,
                "host": socket.gethostname(),
                **self._skew.measure(),
            },
            seen=[f"group {self._group}"],
        )

    def _open_transactions(self) -> list[dict[str, Any]]:
        """Return the open transactions of this bridge, since when any bridge has seen them: a restart ends none."""
        found = self._state.get("open_transactions", [])
        return self._with_first_times("transactions", "{topic}-{partition}-{offset}", found)

    def _note_dead_holds(self) -> list[dict[str, Any]]:
        """Return the dead deliveries that hold others, since when any bridge has seen them."""
        found = self._state.get("dead_holds", [])
        return self._with_first_times("dead holds", "{topic}-{partition}-{offset}:{handler}", found)

    def _with_first_times(self, what: str, naming: str, found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return observations of this bridge with the time of the first bridge that made each.

        Parameters:
            what: their kind.
            naming: the form of their names.
        """
        names = [naming.format(**each) for each in found]
        seen = dict(zip(names, (each["since"] for each in found), strict=True))
        try:
            since = note_first_observation(self._base_ledger, what, seen)
        except LedgerUnavailable as error:
            # A full Redis still takes announcements.
            logger.debug("%s", error)
            since = seen
        return [{**each, "since": since[name]} for name, each in zip(names, found, strict=True)]

    def _poll_backlog(self) -> None:
        """Show the backlog. Each bridge shows all of it, so those of several bridges must not be added up."""
        if self._ledger is None:
            return
        taken = add_up_counts(state.get("holds") for state in self._workers.living().values())
        bridges = self._members.living()
        due = add_up_counts(state.get("due") for state in bridges.values())
        there = (self._ready, taken, due)
        handlers = {handler for counts in there for of_queue in counts.values() for handler in of_queue}
        handlers |= {handler.name for handler in self._routes}
        known = HandlerCosts(self._ledger).read_costs(handlers)
        costs = {name: found.cost.mean if found.cost is not None else None for name, found in known.items()}
        found = measure_backlogs(self._routes.queues, self._ready, taken, due, costs)
        self._metrics.show_backlog({where: (each.deliveries, each.seconds) for where, each in found.items()})
        self._backlog = backlog_to_data(found)
        self._shown_growth = self._growth.add_sample(self._backlog, time.time())
        self._costs = {name: round(cost, 6) for name, cost in costs.items() if cost is not None}
        self._history.add_sample(bridges, handlers, there, time.time())

    def _poll_workers(self) -> None:
        """Show the workers of each queue, and the age of the oldest delivery in flight."""
        workers = self._workers.living()
        if not self._workers.mute:  # a Redis that refuses writes takes no announcements: who is not listed may run
            counts = {queue: sum(queue in w["queues"] for w in workers.values()) for queue in self._routes.queues}
            self._metrics.show_workers(counts)
            self._warn(workers)
        if self._ledger is None or self._finder is None:
            return
        ages = {(topic, handler.name): 0.0 for handler in self._routes for topic in handler.topics}
        gone = find_other_accounts(self._accounts, Accounts(self._ledger).list_accounts())
        ages.update({(account.topic, account.handler): 0.0 for account in gone})
        for account, oldest in self._finder.find_deliveries([*self._accounts, *gone]).items():
            where = (account.topic, account.handler)
            ages[where] = max(ages.get(where, 0.0), oldest.seconds)
        self._metrics.show_oldest(ages)
        self._oldest = ages

    def _warn(self, workers: Mapping[str, Mapping[str, Any]]) -> None:
        """Log once what workers and other bridges leave undone, and when that ends."""
        handlers = tuple(HandlerFacts(h.name, h.topics, h.queue, h.longest_wait) for h in self._routes)
        bridges = self._members.living()
        facts = GroupFacts(
            time.time(),
            self._group,
            handlers,
            bridges=bridges,
            workers=workers,
            seen=self._workers.last_seen(),
            app=self._app,
            foreign=self._foreign,
        )
        found = {**find_unconsumed_queues(facts), **find_unknown_handlers(facts)}
        others, divided = find_other_applications(facts), find_divided_topics(facts)
        foreign = [describe_foreign_member(self._group, facts.foreign)] if facts.foreign else []
        self._show_problems(facts, [*found.values(), *others.values(), *divided.values(), *foreign])
        for name in found.keys() - self._unhandled:
            logger.warning("%s", found[name])
        for name in self._unhandled - found.keys():
            kind = "queue" if name in self._routes.queues else "handler"
            logger.info("%s %r has a worker now.", kind, name)
        self._unhandled = frozenset(found)
        for group in others.keys() - self._others:
            logger.error("%s", others[group])
        self._others = frozenset(others)
        for topic in sorted(divided.keys() - self._divided):
            logger.warning("%s", divided[topic])
        self._divided = frozenset(divided)

    def _show_problems(self, facts: GroupFacts, problems: list[Problem]) -> None:
        """Show how many problems of each kind a bridge finds by itself; 0 if there is none."""
        topic_handlers = [(topic, handler.name) for handler in facts.handlers for topic in handler.topics]
        facts = replace(
            facts,
            outcomes=read_outcomes(self._base_ledger, topic_handlers, facts.now),
            costs=self._costs,
            lost=self._members.lost(),
        )
        for find_problems in (
            find_hung_handlers,
            find_slow_workers,
            find_skewed_clocks,
            find_lost_bridges,
            find_held_back_topics,
        ):
            problems += find_problems(facts)
        counts = Counter(problem.kind for problem in problems)
        self._metrics.show_problems({row.identifier: counts[row.kind] for row in SEEN_BY_BRIDGES})

    def _find_waiting(self, partitions: Iterable[Partition]) -> list[dict[str, Any]]:
        """Return the deliveries that others of their order have waited for since the last announcement or longer."""
        now = time.time()
        deliveries = [
            (partition.topic, partition.number, handler, offset)
            for partition in partitions
            for handler, offset in partition.oldest()
        ]
        names = ("topic", "partition", "handler", "offset")
        return [
            {**dict(zip(names, delivery, strict=True)), "seconds": round(now - since, 1)}
            for delivery, since in self._waiting.keep(deliveries).items()
            if since < now
        ]

    def _find_dead_holds(self, partitions: Sequence[Partition]) -> list[dict[str, Any]]:
        """Return the dead deliveries that hold those behind them, each with since when its first has done so here."""
        holds = [hold for partition in partitions for hold in partition.dead_holds()]
        self._metrics.show_dead_holds((hold.topic, hold.handler, hold.dead, hold.behind) for hold in holds)
        since = self._dead_holds.keep(hold[:4] for hold in holds)
        return [{**hold._asdict(), "since": since[hold[:4]]} for hold in holds]

    def _find_hot_keys(self, partitions: Iterable[Partition]) -> list[dict[str, Any]]:
        """Return the hot keys of the partitions, and since when each is hot; never the key itself."""
        if time.monotonic() - self._hot_at < HOT_KEYS_EVERY:
            return self._hot_keys
        self._hot_at, now = time.monotonic(), time.time()
        lanes = {
            (partition.topic, partition.number, handler, lane.key): lane
            for partition in partitions
            for handler, lane in partition.hot_keys()
        }
        self._hot_keys = [
            {
                "topic": topic,
                "partition": number,
                "handler": handler,
                "offset": lane.first,
                "count": lane.waiting,
                "seconds": round(now - since, 1),
            }
            for (topic, number, handler, key), since in self._hot.keep(lanes).items()
            for lane in [lanes[topic, number, handler, key]]
        ]
        return self._hot_keys


def find_other_accounts(here: Sequence[Account], everyone: Iterable[Account]) -> list[Account]:
    """Return the accounts of these logs whose handlers are not here: they were renamed or removed (pure)."""
    logs = {(each.topic, each.topic_id, each.partition) for each in here}
    known = {*here}
    return [each for each in everyone if each not in known and (each.topic, each.topic_id, each.partition) in logs]


def _format_place(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
