"""The presence of a recorder of the group, and the problems of a recorder that is gone or lags.

A group that records with `--once`, or not at all, misses none.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Final, NamedTuple

from bridge.deadletters.db import position_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.position_rows import PositionState
from bridge.errors import KafkaUnavailable, LedgerUnavailable, RecordingNotEnded
from bridge.formats.delivery_identity import Place
from bridge.formats.text_forms import inflect_verb
from bridge.handler_routes import Routes
from bridge.jobs.group_facts import format_record_count, format_since
from bridge.kafka.partition_offsets import ExtentReader
from bridge.kafka.topic_names import TopicNames
from bridge.ledger import Ledger
from bridge.ledger.group_members import GroupMembers
from bridge.problems.dead_letter_problem_rows import RECORDER_DOWN
from bridge.problems.problem import Problem, make_problem
from bridge.settings import Settings

#: Seconds to wait for Redis.
ANSWER_WITHIN: Final = 2.0
#: Seconds that a recorder has to catch up before it counts as lagging; and seconds between two polls.
TAKES: Final = 3.0
ASK_EVERY: Final = 0.5


class RecorderPresence(NamedTuple):
    """The recorders of a group, as Redis knows them.

    Attributes:
        gone_since: the last heartbeat (Unix time), if none runs now; `None`: one runs, or none ran in the last month,
            or Redis does not answer.
        wanted: whether a recorder is expected (no `--no-more`).
        living: the names of running recorders; `None`: Redis does not answer.
    """

    gone_since: float | None = None
    wanted: bool = True
    living: tuple[str, ...] | None = None

    @property
    def missed(self) -> bool:
        """Return whether the lack of a recorder needs a person."""
        return self.wanted and self.gone_since is not None

    def said(self, now: float | None = None) -> str:
        """Return a warning that the database is incomplete, if a recorder is missed; else ""."""
        if not self.missed or self.gone_since is None:
            return ""
        return (
            f"No recorder of dead letters runs, {format_since(self.gone_since, now or time.time())}: what has died "
            f"since is "
            "not here but in Kafka alone (`bridge deadletters list --from-topic`). Start `bridge deadletters record`."
        )


def read_recorder_presence(settings: Settings) -> RecorderPresence:
    """Return whether a recorder runs, and since when none does."""
    ledger = Ledger.once(settings, ANSWER_WITHIN)
    if ledger is None:
        return RecorderPresence()
    try:
        with closing(ledger):
            members, name = GroupMembers(ledger, "recorders"), name_recorder_members(settings)
            if living := members.living():
                return RecorderPresence(living=tuple(living))
            return RecorderPresence(members.last_seen().get(name), members.is_missed(name), ())
    except LedgerUnavailable:
        # The status reports this.
        return RecorderPresence()


def expect_no_recorder(settings: Settings) -> None:
    """Note that no recorder is to run, so that none is missed until one is started again.

    Raises:
        RecordingNotEnded: a recorder runs, or there is no Redis to note it in.
        LedgerUnavailable: it does not answer.
    """
    ledger = Ledger.once(settings, ANSWER_WITHIN)
    if ledger is None:
        raise RecordingNotEnded("Without a ledger in Redis (LEDGER_URL) no recorder is missed.")
    with closing(ledger):
        members = GroupMembers(ledger, "recorders")
        if living := members.living():
            raise RecordingNotEnded(
                f"A recorder lives, or did ten seconds ago ({', '.join(living)}): stop it, and say it again."
            )
        members.end(name_recorder_members(settings))


def name_recorder_members(settings: Settings) -> str:
    """Return the member name of a group's recorders."""
    return f"group {settings.group}"


def find_recorder_problems(
    settings: Settings,
    routes: Routes,
    database: Database,
    presence: RecorderPresence,
    now: Callable[[], float],
    *,
    kafka_answers: bool,
) -> list[Problem]:
    """Return the problem that no recorder runs, or that it lags; none if no recorder is expected."""
    if not presence.wanted:
        return []
    ends = _read_topic_ends(settings, routes, database) if kafka_answers else {}
    if presence.gone_since is not None:
        left = count_left_letters(read_recorded_positions(settings, database), ends)
        return [describe_gone_recorder(presence.gone_since, left, now())]
    return _wait_for_lag(settings, database, ends, now)


def _read_topic_ends(settings: Settings, routes: Routes, database: Database) -> dict[Place, int]:
    """Return the end offsets of the dead-letter topics; empty if Kafka does not answer, which the status reports."""
    names = TopicNames.from_settings(settings)
    topics = {
        *map(names.dead_letters, routes.topics),
        *(each.topic for each in read_recorded_positions(settings, database)),
    }
    try:
        there = ExtentReader().read(settings, topics)
    except KafkaUnavailable:
        return {}
    return {each.place: each.end for each in there if each.first < each.end}


def _wait_for_lag(
    settings: Settings, database: Database, ends: Mapping[Place, int], now: Callable[[], float]
) -> list[Problem]:
    """Return the lag problems that persist for some seconds: new records are normally recorded within one."""
    give_up = time.monotonic() + TAKES
    while (
        found := [*find_recording_lag(read_recorded_positions(settings, database), ends, now())]
    ) and time.monotonic() < give_up:
        time.sleep(ASK_EVERY)
    return found


def count_left_letters(positions: Iterable[PositionState], ends: Mapping[Place, int]) -> dict[str, int]:
    """Return the records that are not recorded yet, by topic, without topics that are up to date.

    Parameters:
        ends: the end offset of each partition that has records.
    """
    known = {(position.topic, position.partition): position.next for position in positions}
    lag: dict[str, int] = {}
    for place, end in ends.items():
        if (left := end - known.get(place, 0)) > 0:
            lag[place[0]] = lag.get(place[0], 0) + left
    return dict(sorted(lag.items()))


def describe_gone_recorder(since: float, left: Mapping[str, int], now: float) -> Problem:
    """Return the problem that no recorder runs where one did, with the records that wait for it.

    Parameters:
        since: the last heartbeat (Unix time).
    """
    unrecorded = "new dead letters stay in Kafka"
    if left:
        of = ", ".join(f"{format_record_count(count)} of {topic}" for topic, count in left.items())
        unrecorded = f"{of} {inflect_verb(sum(left.values()), 'are')} not in the dead letters' database yet"
    return make_problem(
        RECORDER_DOWN,
        "gone",
        since=since,
        many=sum(left.values()) or None,
        began=format_since(since, now),
        unrecorded=unrecorded,
    )


def find_recording_lag(positions: Iterable[PositionState], ends: Mapping[Place, int], now: float) -> Iterator[Problem]:
    """Yield a problem for each topic with records that are not recorded yet.

    Parameters:
        ends: the end offset of each partition that has records.
    """
    recorded = list(positions)
    for topic, left in count_left_letters(recorded, ends).items():
        last = max((each.at for each in recorded if each.topic == topic), default=None)
        yield make_problem(
            RECORDER_DOWN,
            "lag",
            since=None if last is None else last / 1000,
            many=left,
            unrecorded=f"{format_record_count(left)} of {topic} {inflect_verb(left, 'are')}",
            began="and none ever was" if last is None else f"none {format_since(last / 1000, now)}",
            dead_letter_topic=topic,
        )


def read_recorded_positions(settings: Settings, database: Database) -> list[PositionState]:
    """Return the position of the group's recorders in each partition."""
    with database.reading() as connection:
        return position_rows.read_position_states(connection, settings.group)
