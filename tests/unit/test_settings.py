"""Settings: read from celeryconfig and the environment, every fault at once."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from bridge.errors import SettingsError
from bridge.handler_routes import Handler, Routes
from bridge.kafka.clients import property_fault
from bridge.kafka.topic_names import TopicNames, name_faults
from bridge.settings import (
    OWN_APP,
    Settings,
    hide_password,
    hide_passwords_in,
    is_redis,
    librdkafka_properties,
    load,
    sequence_faults,
    unknown_variables,
)
from bridge.settings import read as read_settings
from tasks.declaration.celery_defaults import OWN_DEFAULTS as DEFAULTS

SECRET = "s3cr3t"
#: One that signs people in to the console.
PROXY = {
    "DEADLETTERS_TRUSTED_PROXY": "10.0.0.7",
    "DEADLETTERS_PROXY_USER_HEADER": "X-User",
    "DEADLETTERS_PROXY_ROLE": "viewer",
}


#: An issuer of OpenID Connect, and a claim of its that says what people may.
#: As `openssl rand -base64 32` prints it.
KEY = "+/Tq0uuk5S2SthOH4e4brW0H4B9kYK5VkKR637e6bG8="
OIDC = {
    "DEADLETTERS_OIDC_ISSUER": "https://sso.example.com",
    "DEADLETTERS_OIDC_CLIENT_ID": "console",
    "DEADLETTERS_OIDC_CLIENT_SECRET": SECRET,
    "DEADLETTERS_OIDC_ROLE": "viewer",
    "DEADLETTERS_CONSOLE_URL": "https://console.example.com",
}
CLAIM = {"DEADLETTERS_OIDC_ROLE_CLAIM": "groups"}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    """Load settings from celeryconfig's values and an environment."""
    monkeypatch.delenv("CELERY_BROKER_URL", raising=False)

    def read(config: dict[str, Any] | None = None, **environ: str) -> Settings:
        app = Celery(OWN_APP, set_as_current=False)
        app.add_defaults(lambda: DEFAULTS)
        app.conf.update(config or {})
        return load(app, environ)

    return read


def faults(read: Callable[..., Settings], config: dict[str, Any] | None = None, **environ: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as wrong:
        read(config, **environ)
    return wrong.value.faults


def test_the_defaults_are_those_of_the_contract(read):
    settings = read()
    assert settings.kafka == {"bootstrap.servers": "localhost:9092"}
    assert settings.group == "bridge"
    assert (settings.environment.BRIDGE_HTTP_PORT, settings.environment.WORKER_METRICS_PORT) == (8090, 8091)
    assert settings.file.kafka_park_after == 60
    assert settings.file.kafka_create_topics
    assert TopicNames.from_settings(settings).dead_letters("orders") == "orders.dlq"
    assert settings.ledger_url == "redis://localhost:6379/0"
    assert settings.topic("orders").commit == "handoff"


def test_kafka_variables_are_librdkafkas_properties(read):
    settings = read(
        KAFKA_BOOTSTRAP_SERVERS="a:1,b:2",
        KAFKA_SASL_USERNAME="me",
        KAFKA_AUTO_OFFSET_RESET="latest",
        KAFKA_SSL_CA_LOCATION="/ca.pem",
        KAFKA_EMPTY="",
        UNRELATED="x",
    )
    assert settings.kafka == {
        "bootstrap.servers": "a:1,b:2",
        "sasl.username": "me",
        "auto.offset.reset": "latest",
        "ssl.ca.location": "/ca.pem",
    }


def test_a_wrong_setting_of_another_app_is_not_looked_for_in_a_celeryconfig():
    app = Celery("mysite", set_as_current=False)
    app.conf.update({"kafka_topic": {}, "worker_prefech_multiplier": 3})
    with pytest.raises(SettingsError) as wrong:
        load(app, {})
    (fault,) = (text for text in wrong.value.faults if "kafka_topic'" in text)
    assert fault.startswith("app 'mysite': there is no setting 'kafka_topic': did you mean kafka_topics?")
    assert not any("celeryconfig" in text for text in wrong.value.faults)


def test_the_version_of_the_handlers_is_no_property_of_librdkafka(read):
    settings = read(KAFKA_HANDLERS_VERSION="1.4")
    assert (settings.environment.KAFKA_HANDLERS_VERSION, settings.ignored, settings.misspelt) == ("1.4", (), [])
    assert settings.kafka == {"bootstrap.servers": "localhost:9092"}


def test_variables_that_librdkafka_does_not_know_are_left_out_and_listed(read):
    settings = read(KAFKA_PORT="tcp://10.0.0.1:9092", KAFKA_HOME="/opt/kafka")
    assert settings.ignored == ("KAFKA_HOME", "KAFKA_PORT")
    assert settings.kafka == {"bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ("KAFKA_SASL_USERNAM", "KAFKA_SASL_USERNAME"),
        ("KAFKA_BOOTSTRAP_SERVER", "KAFKA_BOOTSTRAP_SERVERS"),
        ("KAFKA_SASL_PASWORD", "KAFKA_SASL_PASSWORD"),
        ("KAFKA_SSL_CA_LOCATON", "KAFKA_SSL_CA_LOCATION"),
        ("KAFKA_SECURITY_PROTOCOLS", "KAFKA_SECURITY_PROTOCOL"),
    ],
)
def test_a_misspelt_property_is_left_out_and_told_what_it_was_meant_to_be(read, given, right):
    settings = read(KAFKA_HOME="/opt/kafka", **{given: SECRET})
    assert given in settings.ignored
    assert settings.unrelated == ["KAFKA_HOME"]
    (text,) = settings.misspelt
    assert text.startswith(f"{given} is left out")
    assert f"Did you mean {right}?" in text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ("BRIDGE_GRUOP", "BRIDGE_GROUP"),
        ("BRIDGE_HTTP_PROT", "BRIDGE_HTTP_PORT"),
        ("BRIDGE_LOG_LEVL", "BRIDGE_LOG_LEVEL"),
        ("WORKER_METRIC_PORT", "WORKER_METRICS_PORT"),
        ("LEDGER_ULR", "LEDGER_URL"),
        ("HANDLER", "HANDLERS"),
        ("CELERY_BROKER_ULR", "CELERY_BROKER_URL"),
        ("KAFKA_HANDLERS_VERSON", "KAFKA_HANDLERS_VERSION"),
        ("KAKFA_BOOTSTRAP_SERVERS", "KAFKA_BOOTSTRAP_SERVERS"),
        ("DEADLETTER_MASK", "DEADLETTERS_MASK"),
        ("DEAD_LETTERS_DATABASE_URL", "DEADLETTERS_DATABASE_URL"),
        ("SCHEMA_REGISTRY_USER", "SCHEMA_REGISTRY_USERNAME"),
    ],
)
def test_a_variable_that_nothing_reads_and_that_looks_like_one_of_ours_is_told_to_be_one(read, given, right):
    (text,) = read(**{given: SECRET}).misspelt
    assert f"nothing reads {given}. Did you mean {right}?" in text
    assert SECRET not in text


def test_each_unknown_variable_of_a_schema_registry_is_told_but_for_those_of_kubernetes(read):
    kubernetes = {"SCHEMA_REGISTRY_SERVICE_HOST": "10.0.0.7", "SCHEMA_REGISTRY_PORT": "tcp://10.0.0.7:8081"}
    (text,) = read(SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO=SECRET, **kubernetes).misspelt
    assert "nothing reads SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO: docs/reference/settings.md has the list" in text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("DEADLETTERS_MASKS", "did you mean DEADLETTERS_MASK?"),
        ("DEADLETTERS_DATABASE", "did you mean DEADLETTERS_DATABASE_URL?"),
        ("DEADLETTERS_THIRST", "no setting DEADLETTERS_THIRST: remove it"),
    ],
)
def test_a_variable_of_the_desk_that_there_is_not_is_told_and_stops_nothing_that_does_not_open_the_desk(
    read, given, advice
):
    (text,) = read(**{given: SECRET}).misspelt
    assert advice in text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("worker_prefech_multiplier", ["Did you mean worker_prefetch_multiplier?"]),
        ("task_soft_time_limits", ["Did you mean task_soft_time_limit?"]),
        ("worker_prefetch_multiplier", []),
        ("CELERYD_CONCURRENCY", []),
        ("my_own_setting", []),
    ],
)
def test_a_misspelt_setting_of_celery_is_told_what_it_was_meant_to_be(given, said):
    found = [*unknown_variables.find_misspelt_settings([given])]
    assert len(found) == len(said)
    assert all(words in sentence and given in sentence for words, sentence in zip(said, found, strict=True))


def test_a_misspelt_setting_in_celeryconfig_is_a_warning(read):
    assert "nothing reads task_time_limits" in " ".join(read({"task_time_limits": 5}).misspelt)
    assert read({"task_time_limit": 5, "helper": lambda: None}).misspelt == []


@pytest.mark.parametrize("name", ["bridge_group", "BRIDGE_GROUP", "ledger_url"])
def test_a_variable_in_celeryconfig_is_a_warning_that_names_the_variable(read, name: str):
    (said,) = read({name: "redis://:s3cret@host"}).misspelt
    assert said == f"celeryconfig: nothing reads {name}. Did you mean the environment variable {name.upper()}?"
    # A value that was read from the variable is in force.
    assert read({"BRIDGE_GROUP": "shop", "LEDGER_URL": ""}, BRIDGE_GROUP="shop").misspelt == []


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ({"kafka_topic": {}}, "did you mean kafka_topics?"),
        ({"kafka_topics": {"orders": {"comit": "completion"}}}, "did you mean commit?"),
        ({"kafka_bootstrap_servers": "k:9092"}, "did you mean the environment variable KAFKA_BOOTSTRAP_SERVERS?"),
        ({"kafka_something_else": 1}, "see the list in docs/reference/settings.md"),
    ],
)
def test_an_unknown_setting_of_ours_is_told_what_it_was_meant_to_be(read, given: dict[str, Any], right: str):
    (fault,) = faults(read, given)
    assert "there is no setting" in fault
    assert right in fault


@pytest.mark.parametrize(
    ("variable", "value", "shown"),
    [
        ("CELERY_BROKER_URL", "redis://localhost:6379/0\r", "ends with '\\r'"),
        ("LEDGER_URL", "redis://localhost:6379/0 ", "ends with ' '"),
        ("KAFKA_BOOTSTRAP_SERVERS", " localhost:9092", "begins with ' '"),
        ("BRIDGE_GROUP", "shop\r", "ends with '\\r'"),
        ("KAFKA_CLIENT_ID", "shop\r", "ends with '\\r'"),
        ("KAFKA_SASL_PASSWORD", "hunter2\r\n", "ends with"),
    ],
)
def test_white_space_around_a_value_is_a_fault_that_names_it(read, variable, value, shown):
    found = [fault for fault in faults(read, **{variable: value}) if fault.startswith(f"{variable} ")]
    assert shown in found[0]
    assert not any("hunter2" in fault for fault in found)


def test_a_line_end_behind_the_group_is_one_fault(read):
    (fault,) = faults(read, BRIDGE_GROUP="shop\r")
    assert "ends with" in fault


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("abc", "BRIDGE_HTTP_PORT: must be a whole number (it is 'abc')."),
        ("65536", "BRIDGE_HTTP_PORT: must be 65535 or less (it is '65536')."),
        ("-1", "BRIDGE_HTTP_PORT: must be 0 or more (it is '-1')."),
    ],
)
def test_a_value_of_another_kind_is_told_what_it_must_be(read, value, words):
    (fault,) = faults(read, BRIDGE_HTTP_PORT=value)
    assert fault == f"environment: {words}"


def test_white_space_that_means_something_or_nothing_is_taken(read):
    read(KAFKA_SASL_PASSWORD="ends with a space ", HANDLERS="shop.handlers, shop.others \r\n", KAFKA_SSL_CA_PEM="---\n")


def test_what_others_read_is_not_taken_for_a_slip(read):
    links = ("BRIDGE_PORT", "BRIDGE_HTTP_PORT_80_TCP", "LEDGER_PORT", "WORKER_METRICS_PORTS")
    theirs = ("CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL", "CELERY_RESULT_BACKEND", "BRIDGE_SERVICE_HOST")
    more = ("PATH", "HOME", "HOSTNAME", "BROKER_URL", "DATABASE_URL", "FLOWER_BASIC_AUTH", "_HANDLER", "REDIS_URL")
    assert read(**dict.fromkeys(links, "tcp://10.0.0.1:80"), **dict.fromkeys((*theirs, *more), "x")).misspelt == []


def test_what_kubernetes_and_images_set_is_taken_for_no_property(read):
    names = ("HOME", "PORT", "SERVICE_HOST", "SERVICE_PORT", "PORT_9092_TCP", "PORT_9092_TCP_ADDR", "OPTS", "VERSION")
    more = ("HEAP_OPTS", "LOG_DIRS", "ZOOKEEPER_CONNECT", "ADVERTISED_LISTENERS", "NODE_ID", "CLUSTER_ID", "USER")
    settings = read(**{f"KAFKA_{name}": "x" for name in (*names, *more)})
    assert len(settings.ignored) == len((*names, *more))
    assert settings.misspelt == []


def test_what_kubernetes_sets_for_a_service_is_taken_for_no_setting_of_the_desk(read):
    names = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8093_TCP", "PORT_8093_TCP_ADDR")
    given = {f"DEADLETTERS_{name}": "tcp://10.0.0.1:8093" for name in (*names, "CONSOLE_SERVICE_HOST")}
    assert read(**given).misspelt == []


def test_the_names_that_are_guessed_are_librdkafkas():
    assert [name for name in librdkafka_properties.PROPERTY_NAMES if property_fault(name, "x") == "unknown"] == []


def test_the_environment_and_topics_are_read(read):
    settings = read(
        {"kafka_topics": {"orders": {"commit": "completion", "order": "key", "sequence": ["a", "b"]}}},
        BRIDGE_GROUP="billing",
        BRIDGE_HTTP_PORT="0",
        LEDGER_URL="rediss://other/1",
    )
    assert settings.group == "billing"
    assert settings.environment.BRIDGE_HTTP_PORT == 0
    assert settings.ledger_url == "rediss://other/1"
    assert settings.topic("orders").sequence == ("a", "b")


def test_every_fault_is_listed_at_once(read):
    found = faults(
        read,
        {
            "kafka_topics": {"orders": {"comit": "handoff"}, "returns": {"commit": "never"}},
            "kafka_parkafter": 5,
            "task_acks_late": False,
            "accept_content": ["json", "pickle"],
        },
        BRIDGE_HTTP_PORT="many",
        WORKER_METRICS_PORT="70000",
        KAFKA_SESSION_TIMEOUT_MS="soon",
        KAFKA_ENABLE_AUTO_COMMIT="true",
    )
    for words in (
        "'kafka_topics.orders.comit'",
        "kafka_topics.returns.commit",
        "'kafka_parkafter'",
        "task_acks_late = True",
        "accept_content = ['json']",
        "BRIDGE_HTTP_PORT",
        "WORKER_METRICS_PORT",
        "KAFKA_SESSION_TIMEOUT_MS",
        "KAFKA_ENABLE_AUTO_COMMIT: the bridge sets enable.auto.commit itself",
    ):
        assert any(words in fault for fault in found), words
    assert len(found) == 9


def test_what_the_broker_decides_for_a_group_of_the_new_protocol_is_refused(read):
    found = faults(
        read,
        KAFKA_GROUP_PROTOCOL="Consumer",
        KAFKA_SESSION_TIMEOUT_MS="6000",
        KAFKA_HEARTBEAT_INTERVAL_MS="500",
        KAFKA_GROUP_REMOTE_ASSIGNOR="range",
        KAFKA_GROUP_INSTANCE_ID="one",
        KAFKA_MAX_POLL_INTERVAL_MS="60000",
    )
    assert [*found] == [
        "KAFKA_SESSION_TIMEOUT_MS has no meaning with KAFKA_GROUP_PROTOCOL=consumer: the broker's "
        "group.consumer.session.timeout.ms is in force. Remove the variable.",
        "KAFKA_HEARTBEAT_INTERVAL_MS has no meaning with KAFKA_GROUP_PROTOCOL=consumer: the broker's "
        "group.consumer.heartbeat.interval.ms is in force. Remove the variable.",
    ]
    assert read(KAFKA_GROUP_PROTOCOL="classic", KAFKA_SESSION_TIMEOUT_MS="6000").kafka["session.timeout.ms"] == "6000"


def test_a_variable_that_kubernetes_has_set_for_a_service_is_said_to_be_its(read):
    (said,) = faults(read, BRIDGE_HTTP_PORT="tcp://10.0.0.1:8090")
    assert "BRIDGE_HTTP_PORT" in said
    assert "enableServiceLinks: false" in said
    (said,) = faults(read, BRIDGE_HTTP_PORT="eighty")
    assert "enableServiceLinks" not in said


#: A login by tokens.
BEARER = {"KAFKA_SASL_MECHANISM": "OAUTHBEARER", "KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}


@pytest.mark.parametrize(
    ("config", "environ", "words"),
    [
        ({"kafka_pause_above": 10, "kafka_resume_below": 10}, {}, "must be less than"),
        ({"kafka_pause_above": 0}, {}, "kafka_pause_above"),
        ({"kafka_retry_partitions": True}, {}, "kafka_retry_partitions: must be a number (it is True)"),
        ({"kafka_park_after": False}, {}, "kafka_park_after: must be a number (it is False)"),
        ({"kafka_park_after": 0}, {}, "kafka_park_after"),
        ({"kafka_retry_tiers": ()}, {}, "kafka_retry_tiers must be one or more whole numbers"),
        ({"kafka_retry_tiers": (0, 60)}, {}, "above 0"),
        ({"kafka_retry_tiers": (60, 60)}, {}, "each larger than the one before"),
        ({"kafka_retry_tiers": (60.5,)}, {}, "kafka_retry_tiers.0"),
        ({"kafka_retry_tiers": 60}, {}, "kafka_retry_tiers"),
        ({"kafka_retry_topic": "{topic}.retry"}, {}, "must contain {delay}"),
        ({"kafka_retry_topic": "retry.{delay}"}, {}, "must contain {topic}"),
        ({"kafka_replay_topic": "replay"}, {}, "must contain {topic}"),
        ({"kafka_dead_letter_topic": "{topik}.dlq"}, {}, "may use {topic}, {delay} and {group} only"),
        ({"kafka_dead_letter_topic": "{}.dlq"}, {}, "may use {topic}"),
        ({"kafka_dead_letter_topic": "{topic"}, {}, "may use {topic}"),
        ({"kafka_dead_letter_topic": "{topic} dead"}, {}, "does not take for a topic"),
        ({"kafka_topics": {"o": {"order": "key"}}}, {}, "needs commit='completion'"),
        ({"kafka_topics": {"o": {"order": "random", "commit": "completion"}}}, {}, "kafka_topics.o.order"),
        ({"kafka_topics": ["o"]}, {}, "kafka_topics"),
        ({"task_always_eager": True}, {}, "task_always_eager = False"),
        ({"task_protocol": 1}, {}, "task_protocol = 2"),
        ({"task_acks_on_failure": False}, {}, "task_acks_on_failure"),
        ({"task_acks_on_timeout": False}, {}, "task_acks_on_timeout"),
        ({"task_serializer": "pickle"}, {}, "task_serializer"),
        ({}, {"BRIDGE_GROUP": "no spaces"}, "BRIDGE_GROUP"),
        ({}, {"LEDGER_URL": "amqp://rabbit"}, "LEDGER_URL must be that of a Redis"),
        ({}, PROXY | {"DEADLETTERS_TRUSTED_PROXY": "10.0.0.7/8"}, "DEADLETTERS_TRUSTED_PROXY must be addresses"),
        ({}, PROXY | {"DEADLETTERS_TRUSTED_PROXY": "0.0.0.0/0"}, "this is every address"),
        ({}, PROXY | {"DEADLETTERS_TRUSTED_PROXY": "::/0, 10.0.0.7"}, "this is every address"),
        ({}, PROXY | {"DEADLETTERS_TRUSTED_PROXY": ""}, "anybody could say who they are"),
        ({}, PROXY | {"DEADLETTERS_PROXY_ROLE": ""}, "DEADLETTERS_PROXY_USER_HEADER needs a role"),
        ({}, PROXY | {"DEADLETTERS_PROXY_ROLE": "root"}, "DEADLETTERS_PROXY_ROLE"),
        ({}, PROXY | {"DEADLETTERS_PROXY_ROLE_HEADER": "X-Role"}, "not both"),
        ({}, PROXY | {"DEADLETTERS_PROXY_USER_HEADER": "X User"}, "is no name of a header"),
        ({}, PROXY | {"DEADLETTERS_PROXY_USER_HEADER": ""}, "need DEADLETTERS_PROXY_USER_HEADER"),
        ({}, PROXY | {"DEADLETTERS_PROXY_TOPICS_HEADER": "X Topics"}, "is no name of a header"),
        ({}, {"DEADLETTERS_PROXY_CONSUMER_GROUPS_HEADER": "X-Groups"}, "need DEADLETTERS_PROXY_USER_HEADER"),
        ({}, {"DEADLETTERS_OIDC_TOPICS_CLAIM": "topics"}, "need DEADLETTERS_OIDC_ISSUER"),
        (
            {},
            {"DEADLETTERS_TRACE_URL": "https://jaeger.example.com/trace/"},
            "DEADLETTERS_TRACE_URL must be the address",
        ),
        ({}, {"DEADLETTERS_TRACE_URL": "javascript:{trace_id}"}, "DEADLETTERS_TRACE_URL must be the address"),
        ({}, {"DEADLETTERS_LOGS_URL": "javascript:{delivery}"}, "DEADLETTERS_LOGS_URL must be the address"),
        ({}, {"DEADLETTERS_LOGS_URL": "https://logs.example.com/?q={record}"}, "there is no {record}: use {delivery}"),
        ({}, {"DEADLETTERS_LOGS_URL": "https://logs.example.com/?from={from}"}, "it needs {delivery} or {trace_id}"),
        ({}, {"SCHEMA_REGISTRY_URL": "registry:8081"}, "SCHEMA_REGISTRY_URL must be https://registry"),
        ({}, {"SCHEMA_REGISTRY_URL": "https://me:pw@registry"}, "SCHEMA_REGISTRY_URL has a user or a password"),
        ({}, {"SCHEMA_REGISTRY_TOKEN": "t"}, "SCHEMA_REGISTRY_TOKEN needs SCHEMA_REGISTRY_URL"),
        (
            {},
            {"SCHEMA_REGISTRY_URL": "https://registry", "SCHEMA_REGISTRY_USERNAME": "me"},
            "SCHEMA_REGISTRY_USERNAME and SCHEMA_REGISTRY_PASSWORD go together",
        ),
        ({}, {"DEADLETTERS_CONSOLE_URL": "console.example.com"}, "DEADLETTERS_CONSOLE_URL must be where browsers"),
        ({}, {"DEADLETTERS_CONSOLE_URL": "javascript:alert(1)"}, "DEADLETTERS_CONSOLE_URL must be where browsers"),
        ({}, {"DEADLETTERS_CONSOLE_URL": "https://me:pw@console.example.com"}, "DEADLETTERS_CONSOLE_URL must be"),
        ({}, {"DEADLETTERS_CONSOLE_URL": "https://console.example.com/?a"}, "DEADLETTERS_CONSOLE_URL must be where"),
        ({}, {"DEADLETTERS_WEBHOOK_NETWORKS": "hooks.example.com"}, "DEADLETTERS_WEBHOOK_NETWORKS must be addresses"),
        ({}, {"DEADLETTERS_WEBHOOK_NETWORKS": "10.0.0.7/8"}, "DEADLETTERS_WEBHOOK_NETWORKS must be addresses"),
        ({}, {"DEADLETTERS_WEBHOOK_NETWORKS": "10.0.0.0/8, ::/0"}, "this is every address"),
        ({}, {"DEADLETTERS_SECRET_KEY": SECRET}, "key 1 is not 32 random bytes as base64"),
        ({}, {"DEADLETTERS_SECRET_KEY": f"{KEY}, {KEY[:-4]}"}, "key 2 is not 32 random bytes"),
        ({}, OIDC | {"DEADLETTERS_OIDC_ISSUER": ""}, "need DEADLETTERS_OIDC_ISSUER"),
        ({}, OIDC | {"DEADLETTERS_OIDC_ISSUER": "http://sso.example.com"}, "must be an address with https://"),
        ({}, OIDC | {"DEADLETTERS_OIDC_ISSUER": "https://sso.example.com/#a"}, "must be an address with https://"),
        ({}, OIDC | {"DEADLETTERS_OIDC_CLIENT_SECRET": ""}, "needs DEADLETTERS_OIDC_CLIENT_ID and"),
        ({}, OIDC | {"DEADLETTERS_CONSOLE_URL": ""}, "needs DEADLETTERS_CONSOLE_URL"),
        (
            {},
            OIDC | {"DEADLETTERS_CONSOLE_URL": "http://c.example.com"},
            "needs DEADLETTERS_CONSOLE_URL, with https://",
        ),
        ({}, OIDC | {"DEADLETTERS_OIDC_SCOPES": "email"}, "must have openid"),
        ({}, OIDC | {"DEADLETTERS_OIDC_ROLE": ""}, "DEADLETTERS_OIDC_ISSUER needs a role"),
        ({}, OIDC | {"DEADLETTERS_OIDC_ROLE_CLAIM": "groups"}, "need each other"),
        ({}, OIDC | CLAIM | {"DEADLETTERS_OIDC_ROLES": "root: sre"}, "'root: sre' must be a role and its values"),
        ({}, OIDC | CLAIM | {"DEADLETTERS_OIDC_ROLES": "admin: a; viewer: a"}, "'a' is named twice"),
        ({}, {"DEADLETTERS_CONSOLE_HOSTS": "https://desk.example.com/"}, "without https:// and port"),
        ({}, {"DEADLETTERS_CONSOLE_HOSTS": "desk.example.com, other:8093"}, "'other:8093' is no name of a host"),
        ({}, {"KAFKA_GROUP_ID": "mine"}, "the bridge sets group.id itself"),
        ({}, {"KAFKA_ACKS": "1"}, "the bridge sets acks itself"),
        ({}, {"KAFKA_SECURITY_PROTOCOL": "nonsense"}, "KAFKA_SECURITY_PROTOCOL"),
        ({}, {"KAFKA_OAUTH_CB": "shop.logins:token"}, "is used only with KAFKA_SASL_MECHANISM=OAUTHBEARER and"),
        ({}, {"KAFKA_SASL_MECHANISM": "OAUTHBEARER"}, "needs a source of tokens: an issuer"),
        ({}, BEARER | {"KAFKA_OAUTH_CB": "nowhere:token"}, "KAFKA_OAUTH_CB: the module 'nowhere' cannot be imported"),
        (
            {},
            BEARER | {"KAFKA_OAUTH_CB": "math:cos", "KAFKA_SASL_OAUTHBEARER_METHOD": "oidc"},
            "both give tokens: remove one",
        ),
        (
            {"broker_url": "redis://:s3cr3t@h;redis://h?password=s3cr3t"},
            {"REDIS_CREDENTIALS": "math:cos", "LEDGER_URL": "redis://app:s3cr3t@ledger"},
            "REDIS_CREDENTIALS is not used: CELERY_BROKER_URL and LEDGER_URL have a user or a password",
        ),
        (
            {"broker_url": "amqp://rabbit"},
            {"REDIS_CREDENTIALS": "math:cos"},
            "REDIS_CREDENTIALS is not used: neither CELERY_BROKER_URL nor LEDGER_URL names a Redis",
        ),
    ],
    ids=repr,
)
def test_each_fault_is_found_and_named(read, config, environ, words):
    (fault,) = faults(read, config, **environ)
    assert words in fault


@pytest.mark.parametrize(
    ("broker", "ledger"),
    [
        ("redis://h", {}),
        ("sentinel://a;sentinel://b?master_name=m", {}),
        ("redis+socket:///run/redis.sock?virtual_host=1", {}),
        ("redis://:pw@h", {"LEDGER_URL": "redis://ledger"}),
        ("redis://h;redis://:pw@other", {"LEDGER_URL": "redis://:pw@ledger"}),
        ("amqp://me:pw@rabbit", {"LEDGER_URL": "redis://ledger"}),
    ],
)
def test_credentials_are_used_by_each_redis_without_a_login(read, broker, ledger):
    assert read({"broker_url": broker}, REDIS_CREDENTIALS="math:cos", **ledger).redis.credentials


def test_the_secret_of_an_issuers_client_is_not_shown(read):
    assert read(**OIDC).environment.DEADLETTERS_OIDC_CLIENT_SECRET == SECRET
    assert SECRET not in repr(read(**OIDC))
    assert SECRET not in str(faults(read, {}, **(OIDC | {"DEADLETTERS_OIDC_ROLE": ""})))


@pytest.mark.parametrize("key", [KEY, f" {KEY} , {KEY}", KEY.replace("+", "-").replace("/", "_")])
def test_a_key_is_32_bytes_as_either_base64_and_not_shown(read, key):
    assert KEY not in repr(read(DEADLETTERS_SECRET_KEY=key))
    assert SECRET not in str(faults(read, {}, DEADLETTERS_SECRET_KEY=SECRET))


@pytest.mark.parametrize("option", [{"commit": "completion"}, {"sequence": ["a"]}])
def test_without_redis_what_needs_it_is_refused_by_name(read, option):
    config = {"broker_url": "amqp://rabbit", "kafka_topics": {"orders": option}}
    (fault,) = faults(read, config)
    assert f"{next(iter(option))}=" in fault
    assert "set LEDGER_URL" in fault
    assert read(config, LEDGER_URL="redis://ledger").ledger_url == "redis://ledger"


@pytest.mark.parametrize("ledger", [{}, {"LEDGER_URL": "redis://another"}])
@pytest.mark.parametrize("broker", ["amqp://rabbit", "sentinel://a?master_name=m;sentinel://b"])
def test_waiting_for_the_disk_needs_broker_and_ledger_to_be_one_redis(read, broker, ledger):
    config = {"broker_url": broker, "kafka_topics": {"orders": {"handoff_durability": "fsync"}}}
    (fault,) = faults(read, config, **ledger)
    assert "append-only file" in fault


@pytest.mark.parametrize(
    ("broker", "options"),
    [
        ("sentinel://a;sentinel://b?master_name=main", {}),
        ("sentinel://a;sentinel://b:1", {"master_name": "main", "sentinel_kwargs": {"password": SECRET}}),
    ],
)
def test_behind_sentinels_the_ledger_is_in_the_broker_and_found_with_the_brokers_options(read, broker, options):
    settings = read({"broker_url": broker, "broker_transport_options": options})
    assert (settings.ledger_url, settings.one_redis) == (broker, True)
    assert settings.redis.sentinel == options
    assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    ("broker", "said"),
    [
        ("sentinel://a;sentinel://b", "add ?master_name=mymaster to the address"),
        ("sentinel://:pw@a;sentinel://b?master_name=m", "must be the same in each address"),
        ("sentinel://a;sentinel://b/3?master_name=m", "must be the same in each address"),
        ("sentinel://a;redis://b?master_name=m", "must be that of a Sentinel"),
        ("sentinel://a:port?master_name=m", "is no number"),
        ("sentinel://a?master=m", "there is no option 'master' for Sentinel"),
    ],
)
@pytest.mark.parametrize("named", ["CELERY_BROKER_URL", "LEDGER_URL"])
def test_what_is_wrong_with_an_address_of_sentinels_is_said_at_the_start(read, named, broker, said):
    config, environ = ({"broker_url": broker}, {}) if named == "CELERY_BROKER_URL" else ({}, {named: broker})
    (fault,) = faults(read, config, **environ)
    assert fault.startswith(f"{named}: ")
    assert said in fault
    assert "pw" not in fault


def test_a_list_of_servers_has_no_place_for_the_ledger_and_is_refused_until_it_has_one(read):
    config = {"broker_url": "redis://a;redis://b"}
    (fault,) = faults(read, config)
    assert fault.startswith("CELERY_BROKER_URL lists several Redis servers")
    assert read(config, LEDGER_URL="redis://a").ledger_url == "redis://a"


def test_without_redis_the_rest_works(read):
    assert read({"broker_url": "amqp://rabbit"}).ledger_url is None


@pytest.mark.parametrize(
    ("url", "redis"),
    [
        ("redis://h", True),
        ("rediss://h", True),
        ("sentinel://h;sentinel://i", True),
        ("redis+socket:///tmp/s", True),
        ("amqp://h", False),
        ("memory://", False),
        ("", False),
    ],
)
def test_a_redis_is_known_by_its_url(url, redis):
    assert is_redis(url) is redis


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:pw@h:6379/0", "redis://…@h:6379/0"),
        ("rediss://user:p%40w@h/1", "rediss://…@h/1"),
        ("amqp://u:p@w@h//", "amqp://…@h//"),
        ("sentinel://:pw@a:1;sentinel://:pw@b:2/0", "sentinel://…@a:1;sentinel://…@b:2/0"),
        ("redis://h/0", "redis://h/0"),
        ("redis://:p/w@h/0", "redis://…@h/0"),
        ("redis://h/0?password=pw", "redis://h/0?password=…"),
        ("rediss://h/0?ssl_keyfile=/k&password=pw&x=1", "rediss://h/0?ssl_keyfile=/k&password=…&x=1"),
        ("rediss://h/0?PASSWORD=pw", "rediss://h/0?PASSWORD=…"),
        ("redis://:se;cretpw@h/0", "redis://…@h/0"),
        ("redis:/:cretpw@h/0", "redis:/…@h/0"),
        ("user:cretpw@h", "…@h"),
        ("SASL_SSL://user:cretpw@h:1,i:1", "SASL_SSL://…@h:1,i:1"),
    ],
)
def test_a_url_is_shown_without_its_password(url, shown):
    assert hide_password(url) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Cannot connect to redis://:cretpw@h/0: refused",
        "cannot read 'redis:/:cretpw@h/0'",
        "two: redis://h/0;redis://:se;cretpw@h/0",
    ],
)
def test_an_error_is_shown_with_its_words_and_without_the_password_of_an_address(text):
    shown = hide_passwords_in(text)
    assert "cret" not in shown
    assert shown.split(":")[0] == text.split(":")[0]


@pytest.mark.parametrize("servers", [f"user:{SECRET}@h:9092", f"SASL_SSL://user:{SECRET}@h:9092", f"h:9092,{SECRET}@i"])
def test_a_password_in_the_addresses_of_kafka_is_a_fault_that_says_where_it_belongs(read, servers):
    (fault,) = faults(read, {}, KAFKA_BOOTSTRAP_SERVERS=servers)
    assert "KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD" in fault
    assert SECRET not in fault


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"rediss://:{SECRET}@h/0?ssl_cert_req={SECRET}", "there is no option 'ssl_cert_req'"),
        (f"redis://h/0?PASSWORD={SECRET}", "there is no option 'PASSWORD'"),
        (f"redis://h/0?socket_timeout={SECRET}", "the value of 'socket_timeout' is invalid"),
        (f"rediss://h/0?ssl_cert_reqs={SECRET}", "the value of 'ssl_cert_reqs' is invalid"),
        (f"redis:/:{SECRET}@h/0", "write redis://:password@host:6379/0"),
    ],
)
@pytest.mark.parametrize("variable", ["LEDGER_URL", "CELERY_BROKER_URL"])
def test_a_wrong_option_in_the_address_of_redis_is_a_fault_that_names_it_without_its_value(read, variable, url, words):
    given = ({}, {"LEDGER_URL": url}) if variable == "LEDGER_URL" else ({"broker_url": url}, {})
    (fault,) = faults(read, given[0], **given[1])
    assert fault.startswith(f"{variable}: ")
    assert words in fault
    assert SECRET not in fault


def test_no_secret_is_in_any_text_of_the_settings(read):
    settings = read(
        {"broker_url": f"rediss://:{SECRET}@h/0"},
        KAFKA_SASL_PASSWORD=SECRET,
        KAFKA_SSL_KEY_PASSWORD=SECRET,
        LEDGER_URL=f"redis://:{SECRET}@h/1",
    )
    assert settings.kafka["sasl.password"] == SECRET
    for shown in (repr(settings), str(settings), f"{settings.environment!r} {settings.file!r}"):
        assert SECRET not in shown


def test_no_secret_is_in_a_fault(read):
    found = faults(
        read,
        {"kafka_pause_above": 0},
        KAFKA_SSL_KEY_PEM=f"-----{SECRET}",
        KAFKA_SASL_OAUTHBEARER_METHOD=f"{SECRET}",
        LEDGER_URL=f"amqp://:{SECRET}@h",
        BRIDGE_GROUP="no spaces",
    )
    texts = [fault for fault in found if "OAUTHBEARER_METHOD" not in fault]
    assert SECRET not in "".join(texts)


def some_routes(*topics: str) -> Routes:
    return Routes({"charge": Handler("charge", topics, "celery", 1, 600)}) if topics else Routes({})


def faults_with(settings: Settings, *topics: str) -> list[str]:
    return [*name_faults(settings, topics), *sequence_faults(settings, some_routes(*topics))]


def test_the_settings_are_checked_against_the_handlers(read):
    settings = read({"kafka_topics": {"orders": {"sequence": ["charge", "nobody"], "commit": "completion"}}})
    names, sequence = faults_with(settings, "orders", "orders.dlq")
    assert "'orders.dlq' is consumed" in names
    assert "'nobody', which is no handler" in sequence


@pytest.mark.parametrize("name", ["^orders.*", "", "orders!", "a b", "größe", ".", "..", "o" * 250, "orders\n"])
def test_a_name_that_kafka_takes_for_no_topic_is_refused_at_the_start(read, name):
    (fault,) = faults_with(read(), name, "orders")
    assert f"{name!r} is no name of a topic" in fault
    assert ("no pattern" in fault) is name.startswith("^")


def test_an_entry_of_kafka_topics_that_no_topic_can_have_is_a_fault(read):
    (fault,) = faults_with(read({"kafka_topics": {"^orders": {}}}), "orders")
    assert fault.startswith("kafka_topics: '^orders' is no name of a topic")


def test_an_entry_without_a_handler_is_no_fault(read):
    assert faults_with(read({"kafka_topics": {"other": {}}}), "orders") == []


def test_an_app_of_ones_own_may_have_plain_tasks_as_it_likes():
    app = Celery("mysite", set_as_current=False)
    app.conf.update(
        broker_url="redis://localhost:6379/0",
        task_acks_late=False,
        task_serializer="pickle",
        accept_content=["json", "pickle"],
        result_backend="redis://localhost:6379/1",
    )
    load(app, {})
    app.conf.accept_content = ["pickle"]
    with pytest.raises(SettingsError, match="'json' in accept_content"):
        load(app, {})


def test_a_setting_in_capitals_is_named_with_how_it_is_written():
    class Config:
        KAFKA_WINDOW = 3

    app = Celery(OWN_APP, set_as_current=False)
    app.config_from_object(Config)
    _, faults = read_settings(app, {})
    assert "celeryconfig: KAFKA_WINDOW is not read: write kafka_window." in faults


@pytest.mark.parametrize("typo", [{}, {"CELERY_KAFKA_PARKAFTER": 5}])
def test_in_a_django_project_the_settings_are_written_as_djangos_are(typo: dict[str, int]):
    app = Celery("mysite", set_as_current=False)
    given = {"CELERY_BROKER_URL": "redis://localhost:6379/0", "CELERY_KAFKA_PARK_AFTER": 5, "KAFKA_HOSTS": "its own"}
    app.config_from_object(SimpleNamespace(**given, **typo), namespace="CELERY")
    settings, faults = read_settings(app, {})
    if typo:
        assert ["'kafka_parkafter'" in words for words in faults] == [True]
    else:
        assert not faults
        assert settings.file.kafka_park_after == 5


def test_a_setting_without_the_prefix_of_the_namespace_is_a_warning():
    app = Celery("mysite", set_as_current=False)
    given = {"CELERY_BROKER_URL": "redis://localhost:6379/0", "KAFKA_TOPICS": {"orders": {}}, "KAFKA_HOSTS": "its own"}
    app.config_from_object(SimpleNamespace(**given), namespace="CELERY")
    settings, faults = read_settings(app, {})
    assert (faults, settings.misspelt) == (
        [],
        ["settings: nothing reads KAFKA_TOPICS. Did you mean CELERY_KAFKA_TOPICS?"],
    )
