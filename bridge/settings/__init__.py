"""Settings: read from celeryconfig and the environment, checked, every fault reported at once."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from celery import Celery
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bridge.errors import SettingsError
from bridge.handlers import Routes
from bridge.kafka import FIXED, property_fault
from bridge.settings.properties import meant
from bridge.topics.names import TopicNames, topic_fault

#: Kafka's own rule for a group or topic name that every tool can show and type.
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
#: The Kafka consumer group, and the default Celery queue, where BRIDGE_GROUP names no other.
DEFAULT_GROUP: Final = "bridge"
#: The name of this project's own app. On another a handler says for itself what its delivery needs (tasks.defaults).
OWN_APP: Final = "tasks"
_SECRET = re.compile(r"password|secret|key\.pem|jaas|oauthbearer\.config|token", re.IGNORECASE)


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
        kafka_create_topics: whether missing retry, replay and dead-letter topics are created.
        kafka_retry_topic, kafka_replay_topic, kafka_dead_letter_topic: patterns of their names.
        kafka_pause_above: messages in a Celery queue from which on its topics are paused.
        kafka_resume_below: messages in that queue below which they go on.
        kafka_window: offsets from the first that is not settled to the last that was read, above which a partition with
            commit="completion" is paused.
        kafka_stuck_after: seconds after which a delivery that is handed off and not settled is looked for, and
            handed off again if its task is nowhere.
        kafka_unknown_for: seconds that a delivery waits for a worker that knows its handler.
        kafka_ledger_days: days that fates are kept after the last write to their page.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kafka_topics: dict[str, TopicSettings] = Field(default_factory=dict)
    kafka_park_after: float = Field(default=60, gt=0)
    kafka_create_topics: bool = True
    kafka_retry_topic: str = "{topic}.retry.{delay}"
    kafka_replay_topic: str = "{topic}.replay"
    kafka_dead_letter_topic: str = "{topic}.dlq"
    kafka_pause_above: int = Field(default=20_000, gt=0)
    kafka_resume_below: int = Field(default=10_000, ge=0)
    kafka_window: int = Field(default=100_000, ge=1_000)
    kafka_stuck_after: float = Field(default=3_600, ge=1)
    kafka_unknown_for: float = Field(default=3_600, ge=0)
    kafka_ledger_days: float = Field(default=7, gt=0)


class EnvironmentSettings(BaseModel):
    """What the environment says, apart from librdkafka's properties."""

    model_config = ConfigDict(frozen=True)

    BRIDGE_GROUP: str = DEFAULT_GROUP
    BRIDGE_HTTP_PORT: int = Field(default=8090, ge=0, le=65535)
    WORKER_METRICS_PORT: int = Field(default=8091, ge=0, le=65535)
    WORKER_LOG_FORMAT: Literal["text", "json"] = "text"
    LEDGER_URL: str = Field(default="", repr=False)


@dataclass(frozen=True)
class Settings:
    """All settings of both processes; its repr shows no secret.

    Attributes:
        kafka: librdkafka properties, with `bootstrap.servers`.
        ignored: names of KAFKA_ variables that librdkafka does not know and that are left out.
    """

    file: FileSettings
    environment: EnvironmentSettings
    broker_url: str = field(repr=False)
    kafka: Mapping[str, str] = field(repr=False)
    ignored: tuple[str, ...] = ()

    @property
    def misspelt(self) -> list[str]:
        """Of the variables that are left out, those that look like a property's, a sentence each."""
        return [
            f"{name} is left out: librdkafka has no such property. Did you mean {right}?"
            for name in self.ignored
            if (right := meant(name))
        ]

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
    def names(self) -> TopicNames:
        """The names of the retry, replay and dead-letter topics."""
        return TopicNames(
            self.group,
            self.file.kafka_retry_topic,
            self.file.kafka_replay_topic,
            self.file.kafka_dead_letter_topic,
        )

    @cached_property
    def ledger_url(self) -> str | None:
        """The Redis that holds the ledger: LEDGER_URL, or the broker where that is Redis."""
        if self.environment.LEDGER_URL:
            return self.environment.LEDGER_URL
        return self.broker_url if _holds_ledger(self.broker_url) else None

    @property
    def ledger_named(self) -> str:
        """The variable by which the ledger's Redis is set, for errors."""
        return "LEDGER_URL" if self.environment.LEDGER_URL else "CELERY_BROKER_URL"

    @property
    def one_redis(self) -> bool:
        """Whether ledger and broker are the same Redis, so that both can be written in one step."""
        return _holds_ledger(self.broker_url) and self.ledger_url == self.broker_url

    def topic(self, name: str) -> TopicSettings:
        """The settings of one topic."""
        return self.file.kafka_topics.get(name, TopicSettings())


def load(app: Celery, environ: Mapping[str, str]) -> Settings:
    """Read and check all settings that can be checked without a connection.

    Raises:
        SettingsError: with every fault, a sentence each.
    """
    settings, faults = read(app, environ)
    if faults:
        raise SettingsError(faults)
    return settings


def read(app: Celery, environ: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Read all settings, with the defaults in place of those that are wrong; and say what is wrong, a sentence each."""
    faults: list[str] = []
    file = _file_settings(app, faults)
    environment = _environment(environ, faults)
    kafka, ignored = _kafka_properties(environ, faults)
    _check_celery(app, faults)
    settings = Settings(file, environment, str(app.conf.broker_url or ""), kafka, tuple(ignored))
    _check_names(settings, faults)
    _check_ledger(settings, faults)
    return settings, faults


def is_redis(url: str) -> bool:
    """Whether a broker URL is one of Redis."""
    return urlsplit(url).scheme.partition("+")[0] in ("redis", "rediss", "sentinel")


def _holds_ledger(url: str) -> bool:
    """Whether a URL is that of one Redis; a list of several, or Sentinel, is for the broker alone."""
    parts = urlsplit(url)
    try:
        # Read here: a port that is no number is an error when it is read.
        return parts.scheme in ("redis", "rediss") and ";" not in url and parts.port != 0
    except ValueError:
        return False


def hide_password(url: str) -> str:
    """A URL fit for a log: whatever stands before each `@` is left out, and a `password=` behind it."""
    hidden = ";".join(re.sub(r"//.*@", "//…@", part) for part in url.split(";"))
    return re.sub(r"(password=)[^&]*", r"\1…", hidden)


def _file_settings(app: Celery, faults: list[str]) -> FileSettings:
    given = {}
    for name in _own_names(app):
        try:
            given[name] = app.conf[name]
        except KeyError:
            faults.append(f"celeryconfig: {name.upper()} is not read: write {name}.")
    try:
        file = FileSettings.model_validate(given)
    except ValidationError as error:
        faults.extend(_sentence("celeryconfig", problem) for problem in error.errors())
        return FileSettings()
    if file.kafka_resume_below >= file.kafka_pause_above:
        faults.append(
            f"celeryconfig: kafka_resume_below ({file.kafka_resume_below}) must be less than "
            f"kafka_pause_above ({file.kafka_pause_above})."
        )
    return file


def _own_names(app: Celery) -> list[str]:
    """Ours among the names of an app's settings; in a Django project they are written CELERY_KAFKA_TOPICS."""
    namespace: str = getattr(app, "namespace", None) or ""
    prefix = f"{namespace.rstrip('_')}_" if namespace else ""
    bare = (str(name).removeprefix(prefix) for name in app.conf if str(name).startswith((prefix, "kafka_")))
    return sorted({name.lower() for name in bare if name.lower().startswith("kafka_")})


def _environment(environ: Mapping[str, str], faults: list[str]) -> EnvironmentSettings:
    given = {name: environ[name] for name in EnvironmentSettings.model_fields if environ.get(name)}
    try:
        found = EnvironmentSettings.model_validate(given)
    except ValidationError as error:
        faults.extend(_sentence("environment", problem) for problem in error.errors())
        return EnvironmentSettings()
    if not _NAME.fullmatch(found.BRIDGE_GROUP):
        faults.append("BRIDGE_GROUP may hold letters, digits, '.', '_' and '-' only, 200 at most.")
    if found.LEDGER_URL and not _holds_ledger(found.LEDGER_URL):
        faults.append("LEDGER_URL must be that of a Redis: one server, redis:// or rediss://.")
    return found


def _sentence(source: str, problem: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{source}: there is no setting {place!r}: see the list in docs/settings.md."
    return f"{source}: {place}: {problem['msg']} (it is {problem['input']!r})."


def _kafka_properties(environ: Mapping[str, str], faults: list[str]) -> tuple[dict[str, str], list[str]]:
    properties = {"bootstrap.servers": "localhost:9092"}
    ignored = []
    for variable in sorted(environ):
        if not variable.startswith("KAFKA_") or not environ[variable]:
            continue
        name = variable.removeprefix("KAFKA_").lower().replace("_", ".")
        fault = property_fault(name, environ[variable])
        if fault == "unknown":
            ignored.append(variable)
        elif name in FIXED:
            faults.append(f"{variable}: the bridge sets {name} itself: remove the variable.")
        elif fault:
            shown = fault.replace(environ[variable], "…") if _SECRET.search(name) else fault
            faults.append(f"{variable}: {shown.strip()}.")
        else:
            properties[name] = environ[variable]
    return properties, ignored


def _check_celery(app: Celery, faults: list[str]) -> None:
    conf = app.conf
    wanted: tuple[tuple[str, bool, str], ...] = (
        ("'json' in accept_content", "json" in conf.accept_content, "deliveries are JSON"),
        ("task_protocol = 2", conf.task_protocol == 2, "the `kafka` header needs it"),
        ("task_always_eager = False", not conf.task_always_eager, "nothing would go through the broker"),
    )
    if app.main == OWN_APP:
        wanted += (
            ("task_acks_late = True", bool(conf.task_acks_late), "a killed worker would lose what it runs"),
            ("task_acks_on_failure = True", conf.task_acks_on_failure is not False, "failures would loop or be lost"),
            ("task_acks_on_timeout = True", conf.task_acks_on_timeout is not False, "timeouts would loop for ever"),
            ("task_serializer = 'json'", conf.task_serializer == "json", "only JSON is read back"),
            ("accept_content = ['json']", set(conf.accept_content) == {"json"}, "pickle from a queue runs any code"),
        )
    faults.extend(f"celeryconfig: {name} is needed: {why}." for name, right, why in wanted if not right)


def _check_names(settings: Settings, faults: list[str]) -> None:
    file = settings.file
    for name, needed in (
        ("kafka_retry_topic", ("topic", "delay")),
        ("kafka_replay_topic", ("topic",)),
        ("kafka_dead_letter_topic", ()),
    ):
        pattern = getattr(file, name)
        try:
            filled = pattern.format(topic="orders", delay="5m", group=settings.group)
        except (KeyError, IndexError, ValueError):
            faults.append(f"celeryconfig: {name} may use {{topic}}, {{delay}} and {{group}} only; it is {pattern!r}.")
            continue
        missing = [part for part in needed if f"{{{part}}}" not in pattern]
        if missing:
            faults.append(f"celeryconfig: {name} must contain {{{missing[0]}}}; it is {pattern!r}.")
        if not _NAME.fullmatch(filled):
            faults.append(f"celeryconfig: {name} gives {filled!r}, which Kafka does not take for a topic.")


def _check_ledger(settings: Settings, faults: list[str]) -> None:
    for topic, chosen in settings.file.kafka_topics.items():
        where = f"kafka_topics[{topic!r}]"
        if chosen.order and chosen.commit != "completion":
            faults.append(f"{where}: order={chosen.order!r} needs commit='completion'.")
        if chosen.handoff_durability and not settings.one_redis:
            faults.append(
                f"{where}: handoff_durability='fsync' waits for the broker's append-only file: the broker must be one "
                "Redis (redis:// or rediss://), and the ledger the same (no LEDGER_URL)."
            )
        if settings.ledger_url is None:
            faults.extend(
                f"{where}: {option}={value!r} needs a ledger in Redis, and the broker is not one "
                "(redis:// or rediss://): set LEDGER_URL."
                for option in ("commit", "order", "sequence")
                if (value := getattr(chosen, option)) and value != "handoff"
            )


def check_routes(settings: Settings, routes: Routes) -> None:
    """Check the settings against the handlers that were found.

    Raises:
        SettingsError: a topic or a `sequence` does not fit the handlers.
    """
    faults = settings.names.clashes(routes.topics)
    faults.extend(
        f"kafka_topics: {fault}"
        for topic in settings.file.kafka_topics
        if topic not in routes.topics and (fault := topic_fault(topic))
    )
    for topic, chosen in settings.file.kafka_topics.items():
        known = {handler.name for handler in routes.of(topic)}
        faults.extend(
            f"kafka_topics[{topic!r}]: sequence names {name!r}, which is no handler of that topic."
            for name in chosen.sequence
            if name not in known
        )
    if faults:
        raise SettingsError(faults)
