"""The validation of settings: all faults at once, each a sentence that says what to do (pure)."""

import base64
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from celery import Celery
from pydantic import ValidationError

from bridge.errors import how_to_install
from bridge.formats.log_link import find_template_fault
from bridge.formats.schema_registry import REGISTRY_VARIABLES, find_missing_library
from bridge.formats.trace_context import TRACE_ID
from bridge.handler_routes import Routes
from bridge.kafka.clients import BROKERS_OWN, FIXED, NEW_PROTOCOL, group_protocol, property_fault
from bridge.settings.address_values import (
    BROKERS,
    find_unsupported_broker,
    has_login,
    holds_ledger,
    is_redis,
    may_be_asked,
    read_claimed_roles,
    read_networks,
    split_list,
)
from bridge.settings.librdkafka_properties import variable_name
from bridge.settings.masked_fields import read_mask_rules
from bridge.settings.setting_defaults import (
    OWN_APP,
    EnvironmentSettings,
    FileSettings,
    Settings,
    TopicSettings,
)
from bridge.settings.unknown_variables import guess_own_setting
from lossless.sentinel_address import is_sentinel
from lossless.transport.redis_address import find_redis_fault

#: The result for a property that librdkafka does not know: it is left out, without a fault.
UNKNOWN_PROPERTY: Final = "unknown"
#: Kafka's rule for names of groups and topics that every tool can show and type.
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,100}")
_HOST: Final = re.compile(r"[^\s:/?#@*,]{1,253}")
#: The address of a console.
_URL: Final = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
_TRACE_URL: Final = re.compile(r"https?://[^\s/?#@]+/\S*")
_LINKED: Final = (
    "Kubernetes sets that in every pod for a service of this name: call the service otherwise, or say "
    "`enableServiceLinks: false` in the pod's spec."
)
_SECRET: Final = re.compile(r"password|secret|key\.pem|jaas|oauthbearer\.config|token", re.IGNORECASE)
#: The fields that each pattern of a topic's name must contain.
_PATTERNS: Final = {
    "kafka_retry_topic": ("topic", "delay"),
    "kafka_replay_topic": ("topic",),
    "kafka_dead_letter_topic": (),
    "kafka_control_topic": ("group",),
}
#: The fields that each pattern may contain; there is one control topic for the whole group.
_MAY: Final = {**dict.fromkeys(_PATTERNS, "{topic}, {delay} and {group}"), "kafka_control_topic": "{group}"}


#: pydantic's error types in the words of a person who sets a variable.
_WANTED: Final = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "True or False",
    "bool_type": "True or False",
    "string_type": "text",
    "literal_error": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
}


def find_value_faults(source: str, error: ValidationError) -> list[str]:
    """Return a sentence for each value of a wrong type and each unknown setting."""
    return [_sentence(source, problem) for problem in error.errors()]


def _sentence(source: str, problem: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        right = guess_own_setting([str(part) for part in problem["loc"]])
        advice = f"did you mean {right}? Else " if right else ""
        return f"{source}: there is no setting {place!r}: {advice}see the list in docs/reference/settings.md."
    wanted = _WANTED.get(problem["type"])
    must = problem["msg"] if wanted is None else f"must be {wanted.format(**problem.get('ctx', {}))}"
    words = f"{source}: {place}: {must} (it is {problem['input']!r})."
    return f"{words} {_LINKED}" if str(problem["input"]).startswith("tcp://") else words


def find_pressure_faults(file: FileSettings) -> list[str]:
    """Return a fault if the marks of a queue's length contradict each other."""
    if file.kafka_resume_below < file.kafka_pause_above:
        return []
    return [
        f"celeryconfig: kafka_resume_below ({file.kafka_resume_below}) must be less than "
        f"kafka_pause_above ({file.kafka_pause_above})."
    ]


def find_tier_faults(file: FileSettings) -> list[str]:
    """Return a fault if the tiers are not positive and ascending."""
    tiers = file.kafka_retry_tiers
    if tiers and tiers[0] > 0 and all(one < other for one, other in pairwise(tiers)):
        return []
    return [
        "celeryconfig: kafka_retry_tiers must be one or more whole numbers of seconds above 0, each larger than "
        f"the one before; it is {tiers!r}."
    ]


def find_environment_faults(environment: EnvironmentSettings) -> list[str]:
    """Return the faults of the environment's values."""
    wrong = []
    if not _NAME.fullmatch(environment.BRIDGE_GROUP):
        wrong.append("BRIDGE_GROUP may hold letters, digits, '.', '_' and '-' only, 200 at most.")
    if environment.LEDGER_URL and not holds_ledger(environment.LEDGER_URL):
        wrong.append(
            "LEDGER_URL must be that of a Redis: one server, redis:// or rediss://, or the Sentinels of one, sentinel://."
        )
    return [
        *wrong,
        *_host_faults(environment),
        *_proxy_faults(environment),
        *_issuer_faults(environment),
        *_mask_faults(environment),
        *_address_faults(environment),
        *_key_faults(environment),
        *_registry_faults(environment),
    ]


def _registry_faults(environment: EnvironmentSettings) -> Iterator[str]:
    """Yield a fault for each setting of the schema registry that reaches none; it does not repeat a secret."""
    url, named = environment.SCHEMA_REGISTRY_URL, environment.SCHEMA_REGISTRY_USERNAME
    if not url:
        for name in REGISTRY_VARIABLES[1:]:
            if getattr(environment, name):
                yield f"{name} needs SCHEMA_REGISTRY_URL."
        return
    if any("@" in part for part in url.split(",")):
        yield (
            "SCHEMA_REGISTRY_URL has a user or a password, which pages would show: set SCHEMA_REGISTRY_USERNAME and "
            "SCHEMA_REGISTRY_PASSWORD."
        )
    elif not all(_URL.fullmatch(part.strip()) for part in url.split(",")):
        yield (
            "SCHEMA_REGISTRY_URL must be https://registry.example.com, several with commas between them; Apicurio's "
            "ends in /apis/ccompat/v7."
        )
    if bool(named) != bool(environment.SCHEMA_REGISTRY_PASSWORD):
        yield "SCHEMA_REGISTRY_USERNAME and SCHEMA_REGISTRY_PASSWORD go together: set both."
    if named and environment.SCHEMA_REGISTRY_TOKEN:
        yield "SCHEMA_REGISTRY_USERNAME and SCHEMA_REGISTRY_TOKEN are two ways to sign in: leave one out."


def _host_faults(environment: EnvironmentSettings) -> Iterator[str]:
    """Yield a fault for each invalid host name of the console."""
    for name in split_list(environment.DEADLETTERS_CONSOLE_HOSTS):
        if not _HOST.fullmatch(name):
            yield (
                f"DEADLETTERS_CONSOLE_HOSTS: {name!r} is no name of a host: write console.example.com, without "
                "https:// and port, with commas between several."
            )


def _mask_faults(environment: EnvironmentSettings) -> Iterator[str]:
    """Yield a fault for masks that hide nothing, or are missing."""
    try:
        masked = read_mask_rules(environment.DEADLETTERS_MASK)
    except ValueError as error:
        yield f"DEADLETTERS_MASK: {error}."
        return
    if environment.DEADLETTERS_MASK.strip() and not masked:
        yield "DEADLETTERS_MASK masks nothing: write `orders: customer.email`, or leave it out."
    if environment.DEADLETTERS_MASK_NOT_FOR and not masked:
        yield "DEADLETTERS_MASK_NOT_FOR needs DEADLETTERS_MASK: nothing is masked."


def _address_faults(environment: EnvironmentSettings) -> Iterator[str]:
    """Yield a fault for each invalid address that pages and webhooks use."""
    if environment.DEADLETTERS_CONSOLE_URL and not _URL.fullmatch(environment.DEADLETTERS_CONSOLE_URL):
        yield "DEADLETTERS_CONSOLE_URL must be where browsers find the console: https://console.example.com."
    if environment.DEADLETTERS_FLOWER_URL and not _URL.fullmatch(environment.DEADLETTERS_FLOWER_URL):
        yield "DEADLETTERS_FLOWER_URL must be where browsers find Flower, without a password: https://flower.example.com."
    trace_url = environment.DEADLETTERS_TRACE_URL
    if trace_url and (TRACE_ID not in trace_url or not _TRACE_URL.fullmatch(trace_url)):
        yield f"DEADLETTERS_TRACE_URL must be the address of a trace's page: https://jaeger.example.com/trace/{TRACE_ID}."
    logs_url = environment.DEADLETTERS_LOGS_URL
    if logs_url and not _TRACE_URL.fullmatch(logs_url):
        yield "DEADLETTERS_LOGS_URL must be the address of log lines: https://logs.example.com/search?q={delivery}."
    elif logs_url and (fault := find_template_fault(logs_url)):
        yield f"DEADLETTERS_LOGS_URL: {fault}."
    try:
        read_networks(environment.DEADLETTERS_WEBHOOK_NETWORKS)
    except ValueError as error:
        yield f"DEADLETTERS_WEBHOOK_NETWORKS must be addresses or networks, with commas between them: {error}."


def _key_faults(environment: EnvironmentSettings) -> Iterator[str]:
    """Yield a fault for a key that encrypts nothing; it does not repeat the key."""
    for place, key in enumerate(split_list(environment.DEADLETTERS_SECRET_KEY), 1):
        if not _is_key(key):
            yield (
                f"DEADLETTERS_SECRET_KEY: key {place} is not 32 random bytes as base64: make one with "
                "`openssl rand -base64 32`; several stand with commas between them, the newest first."
            )


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)) == 32
    except ValueError:
        return False


def _proxy_faults(environment: EnvironmentSettings) -> Iterator[str]:
    """Yield a fault for a sign-in proxy that could name nobody, or that anybody could imitate."""
    try:
        read_networks(environment.DEADLETTERS_TRUSTED_PROXY)
    except ValueError as error:
        yield f"DEADLETTERS_TRUSTED_PROXY must be addresses or networks, with commas between them: {error}."
    user, role = environment.DEADLETTERS_PROXY_USER_HEADER, environment.DEADLETTERS_PROXY_ROLE_HEADER
    scopes = (environment.DEADLETTERS_PROXY_TOPICS_HEADER, environment.DEADLETTERS_PROXY_CONSUMER_GROUPS_HEADER)
    for name in (user, role, *scopes):
        if name and not _HEADER.fullmatch(name):
            yield f"{name!r} is no name of a header (DEADLETTERS_PROXY_USER_HEADER, and the others of the proxy)."
    if user and not environment.DEADLETTERS_TRUSTED_PROXY:
        yield "DEADLETTERS_PROXY_USER_HEADER needs DEADLETTERS_TRUSTED_PROXY: anybody could say who they are."
    if user and bool(role) == bool(environment.DEADLETTERS_PROXY_ROLE):
        yield (
            "DEADLETTERS_PROXY_USER_HEADER needs a role: DEADLETTERS_PROXY_ROLE for all, or "
            "DEADLETTERS_PROXY_ROLE_HEADER, not both."
        )
    if not user and (role or environment.DEADLETTERS_PROXY_ROLE):
        yield "DEADLETTERS_PROXY_ROLE and DEADLETTERS_PROXY_ROLE_HEADER need DEADLETTERS_PROXY_USER_HEADER."
    if not user and any(scopes):
        yield (
            "DEADLETTERS_PROXY_TOPICS_HEADER and DEADLETTERS_PROXY_CONSUMER_GROUPS_HEADER need "
            "DEADLETTERS_PROXY_USER_HEADER."
        )


def _issuer_faults(environment: EnvironmentSettings) -> Iterator[str]:
    """Yield a fault for an OpenID Connect issuer by which nobody could sign in, or not safely."""
    if not environment.DEADLETTERS_OIDC_ISSUER:
        others = ("CLIENT_ID", "CLIENT_SECRET", "ROLE_CLAIM", "ROLES", "ROLE", "TOPICS_CLAIM", "CONSUMER_GROUPS_CLAIM")
        if any(getattr(environment, f"DEADLETTERS_OIDC_{name}") for name in others):
            yield "The settings DEADLETTERS_OIDC_… need DEADLETTERS_OIDC_ISSUER."
        return
    if not may_be_asked(environment.DEADLETTERS_OIDC_ISSUER):
        yield "DEADLETTERS_OIDC_ISSUER must be an address with https://, as the issuer writes it, without ? and #."
    if not (environment.DEADLETTERS_OIDC_CLIENT_ID and environment.DEADLETTERS_OIDC_CLIENT_SECRET):
        yield "DEADLETTERS_OIDC_ISSUER needs DEADLETTERS_OIDC_CLIENT_ID and DEADLETTERS_OIDC_CLIENT_SECRET."
    if not may_be_asked(environment.DEADLETTERS_CONSOLE_URL):
        yield (
            "DEADLETTERS_OIDC_ISSUER needs DEADLETTERS_CONSOLE_URL, with https://: the issuer sends people back there."
        )
    if "openid" not in environment.DEADLETTERS_OIDC_SCOPES.split():
        yield "DEADLETTERS_OIDC_SCOPES must have openid among them, with spaces between them."
    yield from _claim_faults(environment)


def _claim_faults(environment: EnvironmentSettings) -> Iterator[str]:
    """Yield a fault for claims that give nobody a role."""
    try:
        read_claimed_roles(environment.DEADLETTERS_OIDC_ROLES)
    except ValueError as error:
        yield f"DEADLETTERS_OIDC_ROLES: {error}."
    if bool(environment.DEADLETTERS_OIDC_ROLE_CLAIM) != bool(environment.DEADLETTERS_OIDC_ROLES):
        yield (
            "DEADLETTERS_OIDC_ROLE_CLAIM and DEADLETTERS_OIDC_ROLES need each other: a claim, and which of its values "
            "are which role."
        )
    elif not (environment.DEADLETTERS_OIDC_ROLES or environment.DEADLETTERS_OIDC_ROLE):
        yield (
            "DEADLETTERS_OIDC_ISSUER needs a role: DEADLETTERS_OIDC_ROLE_CLAIM with DEADLETTERS_OIDC_ROLES, or "
            "DEADLETTERS_OIDC_ROLE for everybody whom it signs in."
        )


def find_property_fault(variable: str, name: str, value: str) -> str | None:
    """Return why a property may not have this value; UNKNOWN_PROPERTY if librdkafka does not know it."""
    if name in ("bootstrap.servers", "metadata.broker.list") and "@" in value:
        return (
            f"{variable} takes no user and password: write host:9092 with commas between several, and set "
            "KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD."
        )
    fault = property_fault(name, value)
    if fault == UNKNOWN_PROPERTY:
        return UNKNOWN_PROPERTY
    if name in FIXED:
        return f"{variable}: the bridge sets {name} itself: remove the variable."
    if not fault:
        return None
    shown = fault.replace(value, "…") if _SECRET.search(name) else fault
    return f"{variable}: {shown.strip()}."


def find_protocol_faults(properties: Mapping[str, str]) -> list[str]:
    """Return a fault for each property that the broker decides for groups of the new protocol (KIP-848)."""
    if group_protocol(properties) != NEW_PROTOCOL:
        return []
    return [
        f"{variable_name(name)} has no meaning with KAFKA_GROUP_PROTOCOL=consumer: {why}. Remove the variable."
        for name, why in BROKERS_OWN.items()
        if name in properties
    ]


def find_login_faults(kafka: Mapping[str, Any], oauth_cb: str) -> list[str]:
    """Return a fault if Kafka's clients would wait for a token that nobody gives, or would ask nobody for one.

    Parameters:
        oauth_cb: the value of KAFKA_OAUTH_CB.
    """
    mechanism = str(kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms") or "").upper()
    protocol = str(kafka.get("security.protocol", "")).upper()
    by_issuer = str(kafka.get("sasl.oauthbearer.method", "")).lower() == "oidc"
    if oauth_cb and (mechanism != "OAUTHBEARER" or not protocol.startswith("SASL_")):
        return [
            "KAFKA_OAUTH_CB is used only with KAFKA_SASL_MECHANISM=OAUTHBEARER and KAFKA_SECURITY_PROTOCOL=SASL_SSL: "
            "set both, or remove it."
        ]
    if oauth_cb and by_issuer:
        return ["KAFKA_OAUTH_CB and KAFKA_SASL_OAUTHBEARER_METHOD=oidc both give tokens: remove one."]
    unsecured = str(kafka.get("enable.sasl.oauthbearer.unsecure.jwt", "")).lower() in ("true", "t", "1")
    if mechanism == "OAUTHBEARER" and not (oauth_cb or by_issuer or unsecured):
        return [
            "KAFKA_SASL_MECHANISM=OAUTHBEARER needs a source of tokens: an issuer "
            "(KAFKA_SASL_OAUTHBEARER_METHOD=oidc), or a function (KAFKA_OAUTH_CB=module:function)."
        ]
    return []


def find_celery_faults(app: Celery) -> list[str]:
    """Return the faults of Celery's own settings with which deliveries are lost, loop or cannot be read."""
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
    needed = [f"celeryconfig: {name} is needed: {why}." for name, right, why in wanted if not right]
    return [*find_broker_faults(str(conf.broker_url or "")), *needed]


def find_broker_faults(url: str) -> list[str]:
    """Return a fault if the broker is of a kind that is not supported, though kombu knows it."""
    if (scheme := find_unsupported_broker(url)) is None:
        return []
    if not scheme:
        return [
            "CELERY_BROKER_URL: an address in it begins with no known scheme. Write redis://:password@host:6379/0, "
            "with `;` between several, and the password URL-encoded (`;` is %3B, `@` is %40, `/` is %2F)."
        ]
    supported = ", ".join(f"{name} ({', '.join(schemes)})" for name, schemes in BROKERS.items())
    return [
        f"CELERY_BROKER_URL: the broker {scheme!r} is not supported: deliveries would be lost in it, or never run. "
        f"Supported are {supported}; not Redis Cluster."
    ]


def find_pattern_faults(file: FileSettings, group: str) -> list[str]:
    """Return the faults of the patterns of topic names."""
    return [
        fault
        for name, needed in _PATTERNS.items()
        for fault in _pattern_faults(name, getattr(file, name), needed, group)
    ]


def _pattern_faults(name: str, pattern: str, needed: tuple[str, ...], group: str) -> Iterator[str]:
    parts = {"topic": "orders", "delay": "5m", "group": group} if "topic" in _MAY[name] else {"group": group}
    try:
        filled = pattern.format(**parts)
    except (KeyError, IndexError, ValueError):
        yield f"celeryconfig: {name} may use {_MAY[name]} only; it is {pattern!r}."
        return
    missing = [part for part in needed if f"{{{part}}}" not in pattern]
    if missing:
        yield f"celeryconfig: {name} must contain {{{missing[0]}}}; it is {pattern!r}."
    # An invalid group is a fault of its own.
    if _NAME.fullmatch(group) and not _NAME.fullmatch(filled):
        yield f"celeryconfig: {name} gives {filled!r}, which Kafka does not take for a topic."


#: What holds fates is one Redis: after a change of server within a list they would be in another than the queues.
_NO_LIST: Final = (
    "CELERY_BROKER_URL lists several Redis servers, and the ledger needs one: write the Sentinels that name the "
    "master (sentinel://), or set LEDGER_URL to one Redis."
)


def find_redis_faults(settings: Settings) -> list[str]:
    """Return a fault for each address of a Redis, the ledger's and that of Sentinels for the broker, that no client
    takes.
    """
    if settings.ledger_url is None and is_redis(settings.broker_url) and ";" in settings.broker_url:
        return [_NO_LIST]
    # An address of another kind is a fault of its own.
    addresses = {settings.ledger_named: settings.ledger_url}
    if is_sentinel(settings.broker_url):
        addresses["CELERY_BROKER_URL"] = settings.broker_url
    return [
        f"{named}: {fault}"
        for named, url in addresses.items()
        if url is not None and holds_ledger(url) and (fault := find_redis_fault(url, settings.redis.sentinel))
    ]


def find_unused_credentials(settings: Settings) -> list[str]:
    """Return a fault if no connection asks for the credentials of REDIS_CREDENTIALS."""
    given = {"CELERY_BROKER_URL": settings.broker_url, "LEDGER_URL": settings.environment.LEDGER_URL}
    redis = {name: url for name, url in given.items() if is_redis(url)}
    if not redis:
        return ["REDIS_CREDENTIALS is not used: neither CELERY_BROKER_URL nor LEDGER_URL names a Redis."]
    if not all(has_login(address) for url in redis.values() for address in url.split(";")):
        return []
    verb = "have" if len(redis) > 1 else "has"
    return [
        f"REDIS_CREDENTIALS is not used: {' and '.join(redis)} {verb} a user or a password, which is used instead: "
        "remove it there, or the variable."
    ]


def find_ledger_faults(settings: Settings) -> list[str]:
    """Return the faults of topics that need what this ledger, or a missing one, cannot give."""
    chosen_topics = settings.file.kafka_topics.items()
    faults = [
        fault
        for topic, chosen in chosen_topics
        for fault in _topic_faults(settings, f"kafka_topics[{topic!r}]", chosen)
    ]
    if settings.file.kafka_pause_above_seconds is not None and settings.ledger_url is None:
        faults.append(
            "celeryconfig: kafka_pause_above_seconds needs a ledger in Redis, where workers tell how long deliveries "
            "take, and the broker is not one (redis:// or rediss://): set LEDGER_URL."
        )
    return faults


def _topic_faults(settings: Settings, where: str, chosen: TopicSettings) -> Iterator[str]:
    if chosen.order and chosen.commit != "completion":
        yield f"{where}: order={chosen.order!r} needs commit='completion'."
    if chosen.holds_dead and not chosen.order:
        yield f"{where}: after_dead='hold' holds what is behind a dead letter in its order: it needs an order."
    if chosen.holds_dead and chosen.sequence:
        yield f"{where}: after_dead='hold' and a sequence do not go together yet: leave one out."
    if chosen.handoff_durability and (settings.follows_failover or not settings.one_redis):
        yield (
            f"{where}: handoff_durability='fsync' waits for the broker's append-only file: the broker must be one "
            "Redis (redis:// or rediss://), and the ledger the same (no LEDGER_URL). A failover of Sentinel goes on "
            "with the data of a replica, whatever the master had on its disk: use commit='completion' there."
        )
    if settings.ledger_url is None:
        for option in ("commit", "order", "sequence"):
            if (value := getattr(chosen, option)) and value != "handoff":
                yield (
                    f"{where}: {option}={value!r} needs a ledger in Redis, and the broker is not one "
                    "(redis:// or rediss://): set LEDGER_URL."
                )


def find_sequence_faults(settings: Settings, routes: Routes) -> list[str]:
    """Return a fault for each handler of a `sequence` that the topic does not have."""
    return [
        f"kafka_topics[{topic!r}]: sequence names {name!r}, which is no handler of that topic."
        for topic, chosen in settings.file.kafka_topics.items()
        for name in chosen.sequence
        if name not in {handler.name for handler in routes.of(topic)}
    ]


def find_limit_faults(settings: Settings, routes: Routes) -> list[str]:
    """Return a fault for each handler whose limit would have no place."""
    if settings.ledger_url is not None:
        return []
    return [
        f"{handler.name}: limit needs a ledger in Redis, where workers share it, and the broker is not one (redis:// "
        "or rediss://): set LEDGER_URL."
        for handler in routes
        if handler.limit is not None
    ]


def find_unique_faults(settings: Settings, routes: Routes) -> list[str]:
    """Return a fault for each handler whose unique names would have no place."""
    if settings.ledger_url is not None:
        return []
    return [
        f"{handler.name}: unique_by needs a ledger in Redis, where names are kept, and the broker is not one (redis:// "
        "or rediss://): set LEDGER_URL."
        for handler in routes
        if handler.unique_for is not None
    ]


#: The types of queues that RabbitMQ has for tasks, by the word of Celery's setting; `None`: its default, classic.
QUEUE_TYPES: Final = (None, "classic", "quorum")


def find_queue_type_faults(kind: object) -> list[str]:
    """Return a fault for a type of queue that there is not: Celery would declare classic queues without a word."""
    if kind in QUEUE_TYPES:
        return []
    return [f"task_default_queue_type must be 'quorum' or 'classic'; it is {kind!r}."]


def find_registry_faults(settings: Settings, routes: Routes) -> list[str]:
    """Return a fault for each handler whose codec asks a schema registry, without its address or the extra."""
    asking = [handler.name for handler in routes if handler.reads_schemas]
    if not asking:
        return []
    faults = []
    if settings.registry is None:
        faults = [f"{name}: codec=Registry() asks a schema registry: set SCHEMA_REGISTRY_URL." for name in asking]
    if missing := find_missing_library():
        needs = f"needs the extra registry ({missing} is not installed); {how_to_install('registry')}"
        faults += [f"{name}: codec=Registry() {needs}." for name in asking]
    return faults
