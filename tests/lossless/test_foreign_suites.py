"""The suites of kombu and Celery run over this transport as over kombu's own, but for what is named here."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.lossless.foreign_suites import Outcomes, Suite, Unfetched, fetch, side_by_side
from tests.servers.missing import need

pytestmark = [pytest.mark.slow, pytest.mark.timeout(700)]

#: Tests of kombu's that look at how its transport works inside: part of a name, and why it cannot be so here.
INSIDE_KOMBU = {
    "test_event_loop_consumes_after_connection_reconnect[None-BRPOP]": "cuts the connection of BRPOP, there is none",
    "test_event_loop_consumes_after_connection_reconnect[connection1-BRPOP]": "cuts the connection of BRPOP",
    "test_restore_visible_requeues_expired_unacked": "looks into `unacked`, where nothing of this transport lies",
    "test_failed_requeue_keeps_message_unacked": "looks into `unacked`",
    "test_failed_restore_visible_keeps_message_unacked": "looks into `unacked`",
    "test_unacked_message_requeued_on_connection_close": "looks into `unacked`",
    "test_RedisBrpopHealthCheck": "sets the time at which a BRPOP was sent",
}


def fetched(package: str, folder: Path) -> Path:
    try:
        return fetch(package, folder)
    except Unfetched as error:
        need(str(error))
        raise


def differences(plain: Outcomes, ours: Outcomes) -> list[str]:
    """The tests that pass over kombu's transport and not over this one."""
    return [test for test, outcome in plain.of.items() if outcome == "passed" and ours.of.get(test) == "failed"]


def settled(suites: list[Suite], folder: Path, named: dict[str, str]) -> tuple[Outcomes, Outcomes, list[str]]:
    """What differs each of three times: both projects call most of these tests flaky, and repeat them."""
    plain, ours = side_by_side(suites, folder)
    differing = [test for test in differences(plain, ours) if not any(name in test for name in named)]
    for _ in range(2):
        if differing:
            again = replace(suites[0], select=tuple(differing), seconds=60)
            differing = differences(*side_by_side([again], folder))
    return plain, ours, differing


def test_kombus_suite_passes_as_on_its_own_transport(tmp_path: Path):
    folder = fetched("kombu", tmp_path)
    suites = [
        Suite(folder, "setup.cfg", ("t/integration/test_redis.py", "-k", which), 150)
        for which in ("connection1", "not connection1")
    ]
    plain, ours, differing = settled(suites, tmp_path, INSIDE_KOMBU)
    assert list(plain.of.values()).count("passed") > 100
    assert not differing, "\n\n".join(f"{test}:\n{ours.why[test]}" for test in differing)
    stale = [name for name in INSIDE_KOMBU if not any(name in test for test in differences(plain, ours))]
    assert not stale, f"no longer a difference: {stale}"


#: Tests of Celery's that are left out: part of a name, and why.
LEFT_OUT = {
    "revoked_by_headers": "sleeps for minutes, whatever the transport",
    "direct_worker": "makes a worker of pool solo in the suite's process, which may wait for no result from then on",
}


def test_celerys_suite_passes_as_on_kombus_own_transport(tmp_path: Path):
    folder = fetched("celery", tmp_path)
    parts = (("inspect worker", ""), ("tasks", ""), ("canvas", "test_chord"), ("canvas", "not test_chord"))
    suites = []
    for names, which in parts:
        chosen = [name for name in (which, *(f"not {name}" for name in LEFT_OUT)) if name]
        files = [f"t/integration/test_{name}.py" for name in names.split()]
        suites.append(Suite(folder, "pyproject.toml", (*files, "-k", " and ".join(chosen)), 120))
    plain, ours, differing = settled(suites, tmp_path, {})
    both = [test for test, outcome in plain.of.items() if outcome == "passed" and ours.of.get(test) == "passed"]
    assert len([test for test in both if "test_inspect" in test]) > 10
    assert len(both) > 100  # of some 300, as far as they come in their time
    assert not differing, "\n\n".join(f"{test}:\n{ours.why[test]}" for test in differing)
