"""Headers and bodies that a worker survives."""

from datetime import UTC, datetime, timedelta

import pytest
from celery import Celery
from hypothesis import given
from hypothesis import strategies as st

from lossless.worker.header_validation import ETA_LIMIT, find_call_fault, find_eta_fault, find_header_fault

NOW = datetime(2030, 1, 1, tzinfo=UTC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
NAMES = (
    "id",
    "eta",
    "expires",
    "timelimit",
    "retries",
    "shadow",
    "stamps",
    "stamped_headers",
    "group",
    "custom",
)


@pytest.mark.parametrize("options", [{}, {"time_limit": 5.5, "soft_time_limit": 3}, {"retries": 2, "shadow": "other"}])
def test_what_celery_writes_is_without_fault(options):
    with Celery("sender") as app:
        message = app.amqp.as_task_v2("an-id", "a.task", (1,), {"a": 1}, countdown=5, expires=60, **options)
    assert find_header_fault(message.headers) is None
    assert find_call_fault(message.body) is None


@given(st.dictionaries(st.sampled_from(NAMES), JSON))
def test_any_headers_are_judged_and_none_raises(headers):
    fault = find_header_fault(headers)
    if fault is None:
        assert isinstance(headers["id"], str)
        soft, hard = headers.get("timelimit") or (None, None)
        assert all(limit is None or limit >= 0 for limit in (soft, hard))


@given(JSON)
def test_any_body_is_judged_and_only_a_call_passes(body):
    if find_call_fault(body) is None:
        args, kwargs, _ = body
        assert isinstance(args, list)
        assert isinstance(kwargs, dict)


def test_a_message_may_be_due_within_a_year():
    assert find_eta_fault(None, NOW) is None
    assert find_eta_fault(NOW - timedelta(days=9), NOW) is None
    assert find_eta_fault(NOW + ETA_LIMIT, NOW) is None
    assert find_eta_fault(NOW + ETA_LIMIT + timedelta(seconds=1), NOW)
    assert find_eta_fault(datetime(1, 1, 1, tzinfo=UTC), NOW)
