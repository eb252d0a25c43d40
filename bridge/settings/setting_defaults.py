"""All settings with their defaults: `kafka_…` settings of celeryconfig, environment variables, and both combined."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import UnionType
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from bridge.formats.schema_registry import RegistryOptions, read_registry_options
from bridge.settings.address_values import holds_ledger
from bridge.settings.librdkafka_properties import guess_variable
from lossless.sentinel_address import is_sentinel
from lossless.transport.redis_credentials import FunctionCredentials

#: The default of BRIDGE_GROUP: the Kafka consumer group and default Celery queue.
DEFAULT_GROUP: Final = "bridge"
#: The default of kafka_window: offsets from the first that is not settled to the last read.
DEFAULT_WINDOW: Final = 100_000
#: The name of this project's own app. On another app, a handler sets the task options that its deliveries need
#: (tasks.declaration.celery_defaults).
OWN_APP: Final = "tasks"


class TopicSettings(BaseModel):
    """The settings of one topic: an entry of `kafka_topics`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    commit: Literal["handoff", "completion"] = "handoff"
    order: Literal["key", "partition"] | None = None
    sequence: tuple[str, ...] = ()
    handoff_durability: Literal["fsync"] | None = None
    after_dead: Literal["continue", "hold"] = "continue"

    @property
    def holds_dead(self) -> bool:
        """Return whether a dead letter holds its key, or its partition, until it is replayed or discarded."""
        return self.after_dead == "hold"


class FileSettings(BaseModel):
    """The `kafka_…` settings of celeryconfig.

    Attributes:
        kafka_topics: how each topic is committed and ordered.
        kafka_park_after: seconds; longer waits go through a retry topic.
        kafka_retry_tiers: seconds, ascending: the delays of retry topics; a wait goes to the next one that is long
            enough.
        kafka_retry_partitions: the most partitions of retry, replay and dead-letter topics beside a source without
            order; `None` for as many as the source has, as beside one with order.
        kafka_create_topics: whether missing retry, replay and dead-letter topics are created.
        kafka_retry_topic, kafka_replay_topic, kafka_dead_letter_topic: patterns of their names.
        kafka_control_topic: pattern of the control topic's name, which holds the group's decisions (halts, policies).
        kafka_retry_share: the share of the workers' time for parked and replayed deliveries while new records wait too.
        kafka_pause_above: messages in a Celery queue above which its topics are paused.
        kafka_resume_below: messages in that queue below which they are resumed.
        kafka_pause_above_bytes: bytes of Redis that a Celery queue takes above which its topics are paused.
        kafka_pause_above_seconds: the same for the seconds that all processes of a queue need for its backlog.
        kafka_pause_dead_letters_a_minute: dead letters of a topic within a minute above which it is paused.
        kafka_pause_above_parked: records in a topic's retry topics above which it is paused.
        kafka_pause_above_held_bytes: bytes of records that all partitions of a bridge hold above which those with the
            most are paused.
        kafka_window: offsets from the first unsettled one to the last one read above which a partition with
            commit="completion" is paused.
        kafka_stuck_after: seconds after which an unsettled hand-off is checked, and repeated if its task is lost.
        kafka_unknown_for: seconds that a delivery waits for a worker that knows its handler.
        kafka_ledger_days: days that fates are kept after the last write to their page.
        kafka_deadletters_days: days after which a resolved, discarded or archived dead letter leaves the dead-letter
            store; open ones never do.
        kafka_deadletters_archive: folder for such dead letters, as compressed JSON lines; without it they are deleted.
        kafka_deadletters_largest_value: bytes; of larger values the store has the coordinates alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kafka_topics: dict[str, TopicSettings] = Field(default_factory=dict)
    kafka_park_after: float = Field(default=60, gt=0)
    kafka_retry_tiers: tuple[int, ...] = (60, 120, 300, 600, 1800, 3600, 21_600, 86_400)
    kafka_retry_partitions: int | None = Field(default=4, gt=0)
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
    kafka_pause_above_held_bytes: int = Field(default=200_000_000, gt=0)
    kafka_window: int = Field(default=DEFAULT_WINDOW, ge=1_000)
    kafka_stuck_after: float = Field(default=3_600, ge=1)
    kafka_unknown_for: float = Field(default=3_600, ge=0)
    kafka_ledger_days: float = Field(default=7, gt=0)
    kafka_deadletters_days: float = Field(default=30, gt=0)
    kafka_deadletters_archive: str | None = None
    kafka_deadletters_largest_value: int = Field(default=1_000_000, ge=0)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_switches(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse True and False in place of a number: pydantic would read them as 1 and 0."""
        wanted: Any = cls.model_fields[info.field_name or ""].annotation
        kinds = get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)
        if isinstance(value, bool) and (int in kinds or float in kinds):
            raise PydanticCustomError("number_type", "must be a number")
        return value


class EnvironmentSettings(BaseModel):
    """The environment variables, without librdkafka's properties."""

    model_config = ConfigDict(frozen=True)

    BRIDGE_GROUP: str = DEFAULT_GROUP
    KAFKA_OAUTH_CB: str = ""
    BRIDGE_HTTP_HOST: str = Field(default="0.0.0.0")
    DEADLETTERS_HTTP_HOST: str = Field(default="0.0.0.0")
    WORKER_METRICS_HOST: str = Field(default="0.0.0.0")
    BRIDGE_HTTP_PORT: int = Field(default=8090, ge=0, le=65535)
    DEADLETTERS_HTTP_PORT: int = Field(default=8092, ge=0, le=65535)
    WORKER_METRICS_PORT: int = Field(default=8091, ge=0, le=65535)
    KAFKA_HANDLERS_VERSION: str = ""
    WORKER_LOG_FORMAT: Literal["text", "json"] = "text"
    LEDGER_URL: str = Field(default="", repr=False)
    REDIS_CREDENTIALS: str = ""
    SCHEMA_REGISTRY_URL: str = ""
    SCHEMA_REGISTRY_USERNAME: str = ""
    SCHEMA_REGISTRY_PASSWORD: str = Field(default="", repr=False)
    SCHEMA_REGISTRY_TOKEN: str = Field(default="", repr=False)
    SCHEMA_REGISTRY_CA_FILE: str = ""
    DEADLETTERS_DATABASE_URL: str = Field(default="sqlite:///deadletters.db", repr=False)
    DEADLETTERS_CONSOLE_HOSTS: str = ""
    DEADLETTERS_CONSOLE_URL: str = ""
    DEADLETTERS_CONSOLE_COMMAND: str = "bridge"
    DEADLETTERS_FLOWER_URL: str = ""
    DEADLETTERS_TRACE_URL: str = ""
    DEADLETTERS_LOGS_URL: str = ""
    DEADLETTERS_SECRET_KEY: str = Field(default="", repr=False)
    DEADLETTERS_WEBHOOK_NETWORKS: str = ""
    DEADLETTERS_TRUSTED_PROXY: str = ""
    DEADLETTERS_PROXY_USER_HEADER: str = ""
    DEADLETTERS_PROXY_ROLE_HEADER: str = ""
    DEADLETTERS_PROXY_ROLE: Literal["", "viewer", "operator", "admin"] = ""
    DEADLETTERS_PROXY_TOPICS_HEADER: str = ""
    DEADLETTERS_PROXY_CONSUMER_GROUPS_HEADER: str = ""
    DEADLETTERS_OIDC_ISSUER: str = ""
    DEADLETTERS_OIDC_CLIENT_ID: str = ""
    DEADLETTERS_OIDC_CLIENT_SECRET: str = Field(default="", repr=False)
    DEADLETTERS_OIDC_SCOPES: str = "openid profile email"
    DEADLETTERS_OIDC_ROLE_CLAIM: str = ""
    DEADLETTERS_OIDC_ROLES: str = ""
    DEADLETTERS_OIDC_ROLE: Literal["", "viewer", "operator", "admin"] = ""
    DEADLETTERS_OIDC_TOPICS_CLAIM: str = ""
    DEADLETTERS_OIDC_CONSUMER_GROUPS_CLAIM: str = ""
    DEADLETTERS_MASK: str = ""
    DEADLETTERS_MASK_NOT_FOR: Literal["", "operator", "admin"] = ""
    DEADLETTERS_UNMASK: Literal["yes", "no"] = "yes"
    DEADLETTERS_APPROVAL_ABOVE: int | None = Field(default=None, ge=0)


@dataclass(frozen=True)
class RedisAccess:
    """The settings with which a Redis is reached, beside its address.

    Attributes:
        sentinel: the transport options for Sentinels: `master_name`, `sentinel_kwargs`, `min_other_sentinels`.
        ssl: Celery's `broker_use_ssl`, for the master that Sentinels name.
        credentials: user and password for an address that has none.
    """

    sentinel: Mapping[str, Any] = field(default_factory=dict, repr=False)
    ssl: Any = field(default=None, repr=False)
    credentials: FunctionCredentials | None = None


@dataclass(frozen=True)
class Settings:
    """The settings of bridge and worker; the repr shows no secret.

    Attributes:
        kafka: librdkafka properties, with `bootstrap.servers`, and the source of tokens as `oauth_cb`.
        ignored: names of KAFKA_ variables that librdkafka does not know; they are left out.
        unread: a sentence for each unknown variable that resembles a known one.
        unread_by_desk: a sentence for each unknown DEADLETTERS_ variable; faults for the dead-letter store.
        config_file: the path of the celeryconfig that was read; empty with the user's own app.
        redis: how the ledger's Redis is reached.
        app: the name of the Celery app as given by `-A`, for advice.
    """

    file: FileSettings
    environment: EnvironmentSettings
    broker_url: str = field(repr=False)
    kafka: Mapping[str, Any] = field(repr=False)
    ignored: tuple[str, ...] = ()
    app: str = "tasks"
    unread: tuple[str, ...] = ()
    unread_by_desk: tuple[str, ...] = ()
    config_file: str = ""
    redis: RedisAccess = RedisAccess()

    @property
    def unrelated(self) -> list[str]:
        """Return the KAFKA_ variables that librdkafka does not know and that resemble none of its properties."""
        return [name for name in self.ignored if not guess_variable(name)]

    @property
    def misspelt(self) -> list[str]:
        """Return a sentence for each misspelt variable."""
        left_out = [
            f"{name} is left out: librdkafka has no such property. Did you mean {right}?"
            for name in self.ignored
            if (right := guess_variable(name))
        ]
        return [*left_out, *self.unread, *self.unread_by_desk]

    @property
    def group(self) -> str:
        """Return the Kafka consumer group."""
        return self.environment.BRIDGE_GROUP

    def of_group(self, group: str) -> "Settings":
        """Return the settings for the deliveries of a group: these themselves for "" and for their own group."""
        if group in ("", self.group):
            return self
        return replace(self, environment=self.environment.model_copy(update={"BRIDGE_GROUP": group}))

    @cached_property
    def ledger_url(self) -> str | None:
        """Return the URL of the ledger's Redis: LEDGER_URL, or the broker if that is Redis."""
        if self.environment.LEDGER_URL:
            return self.environment.LEDGER_URL
        return self.broker_url if holds_ledger(self.broker_url) else None

    @property
    def ledger_named(self) -> str:
        """Return the name of the variable that sets the ledger's Redis, for errors."""
        return "LEDGER_URL" if self.environment.LEDGER_URL else "CELERY_BROKER_URL"

    @property
    def one_redis(self) -> bool:
        """Return whether ledger and broker are the same Redis, so that one step can write both."""
        return holds_ledger(self.broker_url) and self.ledger_url == self.broker_url

    @property
    def follows_failover(self) -> bool:
        """Return whether ledger and broker are the master that Sentinels name."""
        return self.one_redis and is_sentinel(self.broker_url)

    @property
    def registry(self) -> RegistryOptions | None:
        """Return the options of the schema registry; `None` without one."""
        return read_registry_options(self.environment.model_dump())

    def topic(self, name: str) -> TopicSettings:
        """Return the settings of one topic."""
        return self.file.kafka_topics.get(name, TopicSettings())
