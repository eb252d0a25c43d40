"""Another Kafka, for copies: where its address and its password come from, and where the password never goes."""

import pytest

from bridge.deadletters.replay.copy_action import CopyTarget, check_copy_topic
from bridge.errors import CopyRefused
from bridge.settings import EnvironmentSettings, FileSettings, Settings

SECRET = {"TARGET_KAFKA_SASL_PASSWORD": "s3cret", "TARGET_KAFKA_SASL_USERNAME": "me"}


@pytest.mark.parametrize("said", ["sandbox:9092", "one:9092,two:9092", "SASL_SSL://one:9092", "[::1]:9092"])
def test_an_address_says_which_kafka_and_the_environment_how_to_get_in(said):
    target = CopyTarget.read(said)
    assert target.properties(SECRET) == {"bootstrap.servers": said, "sasl.password": "s3cret", "sasl.username": "me"}
    assert "s3cret" not in repr(target)


def test_a_file_of_properties_says_both(tmp_path):
    file = tmp_path / "sandbox.properties"
    file.write_text("# the sandbox\nbootstrap.servers = one:9092\n\nsasl.password=s3=cret\n")
    target = CopyTarget.read(str(file))
    assert target.properties({}) == {"bootstrap.servers": "one:9092", "sasl.password": "s3=cret"}
    assert "s3=cret" not in repr(target)


def test_what_is_set_for_our_own_kafka_is_not_used_for_another():
    assert CopyTarget.read("one:9092").properties({"KAFKA_SASL_PASSWORD": "ours"}) == {"bootstrap.servers": "one:9092"}


def test_a_function_gives_the_tokens_of_another_kafka():
    login = {"TARGET_KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "TARGET_KAFKA_SASL_MECHANISM": "OAUTHBEARER"}
    target = CopyTarget.read("one:9092")
    assert repr(target.properties(login | {"TARGET_KAFKA_OAUTH_CB": "math:cos"})["oauth_cb"]) == (
        "OAuthTokenSource(TARGET_KAFKA_OAUTH_CB=math:cos)"
    )
    with pytest.raises(CopyRefused, match="TARGET_KAFKA_OAUTH_CB: the module 'math' has no coz: did you mean cos"):
        target.properties(login | {"TARGET_KAFKA_OAUTH_CB": "math:coz"})
    with pytest.raises(CopyRefused, match=r"\(TARGET_KAFKA_OAUTH_CB=module:function\)"):
        target.properties(login)


@pytest.mark.parametrize("said", ["me:s3cret@one:9092", "s3cret", "/no/such/s3cret.properties", ""])
def test_what_is_neither_is_refused_without_being_said_again(said):
    with pytest.raises(CopyRefused, match="neither addresses") as refused:
        CopyTarget.read(said)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sasl.password=s3cret", "no bootstrap.servers"),
        ("s3cret", "Line 1"),
        ("bootstrap.servers=one:9092\nsecurity.protocol=s3cret", "does not take 'security.protocol'"),
        ("bootstrap.servers=one:9092\nno.such=s3cret", "does not take 'no.such'"),
    ],
)
def test_a_file_that_says_nothing_of_use_is_refused_by_name_and_line_and_no_value(tmp_path, text, why):
    file = tmp_path / "wrong.properties"
    file.write_text(text)
    with pytest.raises(CopyRefused, match=why) as refused:
        CopyTarget.read(str(file)).properties({})
    assert "s3cret" not in str(refused.value)


def test_a_file_that_is_not_there_where_a_plan_is_taken_up_is_named(tmp_path):
    with pytest.raises(CopyRefused, match="cannot be read here"):
        CopyTarget(file=str(tmp_path / "gone.properties")).properties({})


@pytest.mark.parametrize("control", ["{group}.control", "decided-{group}"])
@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("__consumer_offsets", "internal topic"),
        ("__transaction_state", "internal topic"),
        ("others.control", "control topic"),
        ("bridge.control", "control topic"),
        ("others.orders.replay", "replay topic"),
        ("orders.retry.5m", "retry topic"),
        ("orders.retry.3600s", "retry topic"),
    ],
)
def test_no_letter_is_copied_to_where_a_record_acts_on_kafka_or_on_any_group(topic, why, control):
    settings = Settings(FileSettings(kafka_control_topic=control), EnvironmentSettings(), "", {})
    with pytest.raises(CopyRefused, match=why):
        check_copy_topic(settings, topic)


@pytest.mark.parametrize("topic", ["orders", "orders.copies", "orders.dlq", "control", "orders.retry", "replay.orders"])
def test_a_topic_of_any_other_name_may_have_copies(topic):
    check_copy_topic(Settings(FileSettings(kafka_control_topic="{group}"), EnvironmentSettings(), "", {}), topic)


def test_a_pattern_of_the_settings_names_such_topics_too():
    settings = Settings(FileSettings(kafka_control_topic="decided-{group}"), EnvironmentSettings(), "", {})
    with pytest.raises(CopyRefused, match="control topic"):
        check_copy_topic(settings, "decided-others")


def test_a_password_among_the_addresses_is_refused_without_being_said_again(tmp_path):
    file = tmp_path / "sandbox.properties"
    file.write_text("bootstrap.servers=me:s3cret@one:9092")
    for read in (
        lambda: CopyTarget.configured({"TARGET_KAFKA_BOOTSTRAP_SERVERS": "me:s3cret@one:9092"}),
        CopyTarget.read(str(file)).properties,
    ):
        with pytest.raises(CopyRefused, match="take no user and password") as refused:
            read()
        assert "s3cret" not in str(refused.value)
