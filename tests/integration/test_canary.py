"""A canary over a handler that fails still stops within seconds; over one that was mended it goes on to the end."""

import time
from collections import Counter
from pathlib import Path

import pytest

from bridge.formats.delivery import Attempts
from tests.delivery_checks import audit, choose, command, json_of, letters
from tests.desk.recorders import has, recorder
from tests.processes import Stack, eventually

#: Each command is a process, which takes seconds to start on a busy machine.
pytestmark = pytest.mark.timeout(300)

COMPLETION = {"commit": "completion"}
#: Of 1, 5, 20 and the rest.
LETTERS = 30
REPLAY = ("deadletters", "replay", "--handler", "patient", "--canary", "--yes")


@pytest.mark.slow
def test_it_stops_at_its_first_letter_that_fails_and_goes_through_once_its_handler_is_mended(
    stack: Stack, tmp_path: Path, desk_url: str
):
    choose(stack, {"patient": COMPLETION})
    stack.make_topics("patient")
    stack.worker(wait=False)
    stack.bridge()
    deployed, mended = tmp_path / "deployed", tmp_path / "mended"
    first, *others = stack.produce("patient", *[{"mend": str(deployed), "until": str(mended)}] * LETTERS)
    letters(stack, "patient", LETTERS)
    recorder(stack)
    has(desk_url, LETTERS)

    # It is deployed, and fails still, by what its own policy would retry for minutes.
    deployed.touch()
    began = time.monotonic()
    stopped = json_of(stack, *REPLAY, "--wait", code=3)
    assert time.monotonic() - began < 50, "it waited for a retry, of which the first comes after 50 s"
    assert (stopped["state"], stopped["outcomes"]) == ("stopped", {"dead": 1, "waiting": LETTERS - 1})
    (*_, last) = letters(stack, "patient", LETTERS + 1)
    assert (last.reason, last.error_message, last.attempts) == ("exhausted", "not yet", Attempts(1, replayed=1))
    runs = Counter(run.coordinates for run in stack.runs("patient") if run.outcome == "begun")
    assert runs == {first: 2} | dict.fromkeys(others, 1)

    mended.touch()
    # Gone on with, it begins with a first wave again; what died is open, and another plan's.
    left = json_of(stack, "deadletters", "plans", "apply", str(stopped["plan"]), "--yes", "--wait", code=3)
    assert (left["state"], left["outcomes"]) == ("done", {"dead": 1, "done": LETTERS - 1})
    done = json_of(stack, *REPLAY, "--wait")
    assert (done["state"], done["outcomes"]) == ("done", {"done": 1})
    eventually(lambda: sorted(stack.done("patient")) == sorted([first, *others]), 60)
    assert audit(stack, "patient")["clean"]
    # For the last wave nobody waits: it has the handler's own policy.
    sent = [dict(record.headers() or ()).get("replay_once") for record in stack.records("patient.replay")]
    assert Counter(sent) == {b"1": 1 + 1 + 5 + 20, None: 3 + 1}


@pytest.mark.slow
def test_where_no_recorder_runs_who_waits_records_what_dies_again(stack: Stack, tmp_path: Path):
    stack.environ["DEADLETTERS_DATABASE_URL"] = f"sqlite:///{tmp_path}/letters.db"
    choose(stack, {"patient": COMPLETION})
    stack.make_topics("patient")
    stack.worker(wait=False)
    stack.bridge()
    stack.produce("patient", *[{"mend": str(tmp_path / "deployed"), "until": str(tmp_path / "never")}] * 2)
    letters(stack, "patient", 2)
    command(stack, "deadletters", "record", "--once")
    (tmp_path / "deployed").touch()
    found = json_of(stack, *REPLAY, "--wait", code=3)
    assert found["outcomes"] == {"dead": 1, "waiting": 1}
