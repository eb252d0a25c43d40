"""Every setting with its default:

`kafka_…` settings of celeryconfig, environment variables, and both as the processes use them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from bridge.settings.address_values import holds_ledger
from bridge.settings.librdkafka_properties import guess_variable

#: The Kafka consumer group, and the default Celery queue, where BRIDGE_GROUP names no other.
DEFAULT_GROUP: Final = "bridge"
#: The name of this project's own app. On another a handler says for itself what its delivery needs
#: (tasks.declaration.celery_defaults).
OWN_APP: Final = "tasks"


class TopicSettings(BaseModel):
    """One entry of `kafka_topics`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    commit: Literal["handoff", "completion"] = "handoff"
    order: Literal["key", "partition"] | None = None
    sequence: tuple[str, ...] = ()
    handoff_durability: Literal["fsync"] | None = None


class FileSettings(BaseModel):
    """The `kafka_…` settings of celeryconfig.

    Attributes:
        kafka_topics: per topic, how it is committed and ordered.
        kafka_park_after: seconds; waits from this length on go through a retry topic.
        kafka_retry_tiers: seconds, ascending: how long retry topics hold what is parked; a wait goes to the next one
            that is long enough.
        kafka_create_topics: whether missing retry, replay and dead-letter topics are created.
        kafka_retry_topic, kafka_replay_topic, kafka_dead_letter_topic: patterns of their names.
        kafka_control_topic: pattern of the name of the topic that has what was decided for the group: halts, policies.
        kafka_retry_share: the part of the workers' time that what was parked or sent back has while all else waits too.
        kafka_pause_above: messages in a Celery queue from which on its topics are paused.
        kafka_resume_below: messages in that queue below which they go on.
        kafka_pause_above_bytes: bytes of Redis that a Celery queue takes from which on its topics are paused.
        kafka_pause_above_seconds: seconds that all processes which consume a queue need for what waits there.
        kafka_pause_dead_letters_a_minute: dead letters of a topic within a minute from which on it is paused.
        kafka_pause_above_parked: records in a topic's retry topics from which on it is paused.
        kafka_window: offsets from the first that is not settled to the last that was read, above which a partition with
            commit="completion" is paused.
        kafka_stuck_after: seconds after which a delivery that is handed off and not settled is looked for, and
            handed off again if its task is nowhere.
        kafka_unknown_for: seconds that a delivery waits for a worker that knows its handler.
        kafka_ledger_days: days that fates are kept after the last write to their page.
        kafka_deadletters_days: days after which a recorded dead letter that is resolved, discarded or archived leaves
            the desk's database; open ones never do.
        kafka_deadletters_archive: folder into which it goes then, as compressed JSON lines; none: to nothing.
        kafka_deadletters_largest_value: bytes; of a larger value the database has the coordinates alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kafka_topics: dict[str, TopicSettings] = Field(default_factory=dict)
    kafka_park_after: float = Field(default=60, gt=0)
    kafka_retry_tiers: tuple[int, ...] = (60, 120, 300, 600, 1800, 3600, 21_600, 86_400)
    kafka_create_topics: bool = True
    kafka_retry_topic: str = "{topic}.retry.{delay}"
    kafka_replay_topic: str = "{topic}.replay"
    kafka_dead_letter_topic: str = "{topic}.dlq"
    kafka_control_topic: str = "{group}.control"
    kafka_retry_share: float = Field(default=0.5, gt=0, lt=1)
    kafka_pause_above: int = Field(default=20_000, gt=0)
    kafka_resume_below: int = Field(default=10_000, ge=0)
    kafka_pause_above_bytes: int | None = Field(default=1_000_000_000, gt=0)
    kafka_pause_above_seconds: float | None = Field(default=None, gt=0)
    kafka_pause_dead_letters_a_minute: int | None = Field(default=None, gt=0)
    kafka_pause_above_parked: int | None = Field(default=None, gt=0)
    kafka_window: int = Field(default=100_000, ge=1_000)
    kafka_stuck_after: float = Field(default=3_600, ge=1)
    kafka_unknown_for: float = Field(default=3_600, ge=0)
    kafka_ledger_days: float = Field(default=7, gt=0)
    kafka_deadletters_days: float = Field(default=30, gt=0)
    kafka_deadletters_archive: str | None = None
    kafka_deadletters_largest_value: int = Field(default=1_000_000, ge=0)


class EnvironmentSettings(BaseModel):
    """What the environment says, apart from librdkafka's properties."""

    model_config = ConfigDict(frozen=True)

    BRIDGE_GROUP: str = DEFAULT_GROUP
    BRIDGE_HTTP_HOST: str = Field(default="0.0.0.0")
    DEADLETTERS_HTTP_HOST: str = Field(default="0.0.0.0")
    WORKER_METRICS_HOST: str = Field(default="0.0.0.0")
    BRIDGE_HTTP_PORT: int = Field(default=8090, ge=0, le=65535)
    DEADLETTERS_HTTP_PORT: int = Field(default=8092, ge=0, le=65535)
    WORKER_METRICS_PORT: int = Field(default=8091, ge=0, le=65535)
    KAFKA_HANDLERS_VERSION: str = ""
    WORKER_LOG_FORMAT: Literal["text", "json"] = "text"
    LEDGER_URL: str = Field(default="", repr=False)
    DEADLETTERS_DATABASE_URL: str = Field(default="sqlite:///deadletters.db", repr=False)
    DEADLETTERS_CONSOLE_HOSTS: str = ""
    DEADLETTERS_CONSOLE_URL: str = ""
    DEADLETTERS_CONSOLE_COMMAND: str = "bridge"
    DEADLETTERS_FLOWER_URL: str = ""
    DEADLETTERS_WEBHOOK_NETWORKS: str = ""
    DEADLETTERS_TRUSTED_PROXY: str = ""
    DEADLETTERS_PROXY_USER_HEADER: str = ""
    DEADLETTERS_PROXY_ROLE_HEADER: str = ""
    DEADLETTERS_PROXY_ROLE: Literal["", "viewer", "operator", "admin"] = ""
    DEADLETTERS_OIDC_ISSUER: str = ""
    DEADLETTERS_OIDC_CLIENT_ID: str = ""
    DEADLETTERS_OIDC_CLIENT_SECRET: str = Field(default="", repr=False)
    DEADLETTERS_OIDC_SCOPES: str = "openid profile email"
    DEADLETTERS_OIDC_ROLE_CLAIM: str = ""
    DEADLETTERS_OIDC_ROLES: str = ""
    DEADLETTERS_OIDC_ROLE: Literal["", "viewer", "operator", "admin"] = ""
    DEADLETTERS_MASK: str = ""
    DEADLETTERS_MASK_NOT_FOR: Literal["", "operator", "admin"] = ""
    DEADLETTERS_UNMASK: Literal["yes", "no"] = "yes"


@dataclass(frozen=True)
class Settings:
    """All settings of both processes; its repr shows no secret.

    Attributes:
        kafka: librdkafka properties, with `bootstrap.servers`.
        ignored: names of KAFKA_ variables that librdkafka does not know and that are left out.
        unread: of variables that nothing reads, those that look like one of ours, a sentence each.
        unread_by_desk: those that begin like one of the desk's, a sentence each: faults where the desk is opened.
        config_file: the path of the celeryconfig that was read; empty with an app of the user's own.
        app: the Celery app as `-A` names it, for advice.
    """

    file: FileSettings
    environment: EnvironmentSettings
    broker_url: str = field(repr=False)
    kafka: Mapping[str, str] = field(repr=False)
    ignored: tuple[str, ...] = ()
    app: str = "tasks"
    unread: tuple[str, ...] = ()
    unread_by_desk: tuple[str, ...] = ()
    config_file: str = ""

    @property
    def misspelt(self) -> list[str]:
        """Variables that are not read and were probably meant to be, a sentence each."""
        left_out = [
            f"{name} is left out: librdkafka has no such property. Did you mean {right}?"
            for name in self.ignored
            if (right := guess_variable(name))
        ]
        return [*left_out, *self.unread, *self.unread_by_desk]

    @property
    def group(self) -> str:
        """The Kafka consumer group."""
        return self.environment.BRIDGE_GROUP

    def of_group(self, group: str) -> "Settings":
        """The same settings for what another group has handed off; for none, these."""
        if group in ("", self.group):
            return self
        return replace(self, environment=self.environment.model_copy(update={"BRIDGE_GROUP": group}))

    @cached_property
    def ledger_url(self) -> str | None:
        """The Redis that holds the ledger: LEDGER_URL, or the broker where that is Redis."""
        if self.environment.LEDGER_URL:
            return self.environment.LEDGER_URL
        return self.broker_url if holds_ledger(self.broker_url) else None

    @property
    def ledger_named(self) -> str:
        """The variable by which the ledger's Redis is set, for errors."""
        return "LEDGER_URL" if self.environment.LEDGER_URL else "CELERY_BROKER_URL"

    @property
    def one_redis(self) -> bool:
        """Whether ledger and broker are the same Redis, so that both can be written in one step."""
        return holds_ledger(self.broker_url) and self.ledger_url == self.broker_url

    def topic(self, name: str) -> TopicSettings:
        """The settings of one topic."""
        return self.file.kafka_topics.get(name, TopicSettings())
