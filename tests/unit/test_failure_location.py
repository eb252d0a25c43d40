"""The place that raised an exception, of tracebacks as Python and Java print them."""

import subprocess
import sys
import time
import traceback
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.deadletters.model.failure_location import CODEC, LONGEST, find_failure_location

HANDLER = "orders.handlers.charge"


def python(*frames: str, error: str = "ValueError: no") -> str:
    lines = [
        f'  File "{path}", line {at}, in {name}\n    code()\n' for at, (path, name) in enumerate(map(_parts, frames))
    ]
    return "".join(["Traceback (most recent call last):\n", *lines, error, "\n"])


def _parts(frame: str) -> tuple[str, str]:
    path, _, name = frame.rpartition(":")
    return path, name


OURS = "/usr/lib/python3.11/site-packages/tasks/execution/batch_run.py:run"
MINE = "/srv/app/orders/handlers.py:charge"
INSTALLED = "/usr/lib/python3.11/site-packages"
UV = "/root/.local/share/uv/python/cpython-3.12.1-linux-x86_64-gnu/lib/python3.12"


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        ((OURS, MINE), "orders/handlers.py:charge"),
        ((OURS, MINE, "/srv/app/orders/bank.py:pay"), "orders/bank.py:pay"),
        ((OURS, MINE, "/srv/app/orders/bank.py:pay", "/srv/app/orders/bank.py:<listcomp>"), "orders/bank.py:pay"),
        ((OURS, MINE, "/srv/app/shared/money.py:exact"), "shared/money.py:exact"),
        ((OURS, MINE, "/usr/lib/python3.11/json/decoder.py:decode"), "orders/handlers.py:charge"),
        ((OURS, MINE, "/opt/venv/lib64/python3.13t/site-packages/httpx/_client.py:send"), "orders/handlers.py:charge"),
        ((OURS, MINE, f"{UV}/ssl.py:read"), "orders/handlers.py:charge"),
        ((OURS, MINE, "C:\\Python311\\Lib\\json\\decoder.py:decode"), "orders/handlers.py:charge"),
        ((OURS, "C:\\app\\orders\\handlers.py:charge", "C:\\app\\orders\\bank.py:pay"), "orders/bank.py:pay"),
        ((OURS, MINE, "<string>:__init__"), "orders/handlers.py:charge"),
        ((OURS, MINE, "/srv/app/orders/tasks/pay.py:pay"), "orders/tasks/pay.py:pay"),
        # The user's package is installed; what it uses too.
        (
            (OURS, f"{INSTALLED}/orders/handlers.py:charge", f"{INSTALLED}/httpx/_client.py:send"),
            "orders/handlers.py:charge",
        ),
        # A project's folder has the package's name.
        (
            (OURS, "/home/me/orders/orders/handlers.py:charge", "/home/me/orders/orders/bank.py:pay"),
            "orders/bank.py:pay",
        ),
        # Without a frame of the handler's module.
        ((OURS, "/srv/app/orders/models/order.py:check"), "orders/models/order.py:check"),
        ((OURS, "/srv/app/elsewhere/deep/down.py:check"), "deep/down.py:check"),
        # No frame is the user's: the deepest of all.
        ((OURS,), "tasks/execution/batch_run.py:run"),
        ((OURS, "/usr/lib/python3.11/site-packages/pydantic/main.py:validate"), "pydantic/main.py:validate"),
        (("/usr/lib/python3.11/json/decoder.py:decode",), "json/decoder.py:decode"),
        (("/work/checkout/tasks/execution/handler_attempt.py:decode",
        "/work/checkout/tasks/declaration/value_codec.py:guarded"), CODEC), ((), ""),
    ],
)  # fmt: skip
def test_the_deepest_frame_of_the_users_code_is_the_place(frames, found):
    assert find_failure_location(python(*frames), HANDLER) == found


def test_the_same_fault_has_the_same_place_on_machines_with_other_folders():
    first = python("/srv/a/orders/handlers.py:charge", "/srv/a/orders/clients/bank.py:pay")
    second = python("/home/me/b/orders/handlers.py:charge", "/home/me/b/orders/clients/bank.py:pay")
    assert (
        find_failure_location(first, HANDLER) == find_failure_location(second, HANDLER) == "orders/clients/bank.py:pay"
    )
    assert find_failure_location(first, "a name") == find_failure_location(second, "a name") == "clients/bank.py:pay"


CHAINED = """
The above exception was the direct cause of the following exception:

"""


def test_of_a_chain_the_last_exception_counts():
    text = python(MINE, "/srv/app/orders/bank.py:pay") + CHAINED + python(MINE, "/srv/app/orders/errors.py:tell")
    assert find_failure_location(text, HANDLER) == "orders/errors.py:tell"


REFUSED = python(
    "/x/tasks/execution/handler_attempt.py:decode",
    "/x/tasks/declaration/value_codec.py:guarded",
    error="tasks.errors.Undecodable: no",
)


def test_of_a_value_that_the_user_s_codec_refuses_the_codec_s_own_frame_is_the_place():
    codec = python(
        "/x/tasks/declaration/value_codec.py:guarded",
        "/srv/app/orders/wire.py:read",
        "/usr/lib/python3.11/struct.py:unpack",
    )
    assert find_failure_location(codec + CHAINED + REFUSED, HANDLER) == "orders/wire.py:read"


def test_of_a_value_that_is_refused_before_any_code_of_the_user_s_runs_the_codec_is_named():
    json = python(
        "/x/tasks/declaration/value_codec.py:guarded",
        "/x/tasks/declaration/value_codec.py:_json",
        "/usr/lib/python3.11/json/decoder.py:decode",
    )
    assert find_failure_location(json + CHAINED + REFUSED, HANDLER) == find_failure_location(REFUSED, HANDLER) == CODEC


@pytest.mark.parametrize(
    "message",
    [
        'ValueError: no\n  File "/srv/app/orders/evil.py", line 1, in evil',
        'ValueError: """\nTraceback (most recent call last):\n  File "/srv/app/orders/evil.py", line 1, in evil\n"""',
        f"ValueError: a{CHAINED}b",
        "ValueError: a\n\tat shop.Evil.evil(Evil.java:1)",
    ],
)
def test_what_a_message_says_is_no_frame(message):
    assert find_failure_location(python(MINE, error=message), HANDLER) == "orders/handlers.py:charge"


def test_what_python_itself_prints_is_read(tmp_path: Path):
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "__init__.py").touch()
    (tmp_path / "orders" / "handlers.py").write_text(
        dedent("""
        import json
        def pay(text):
            return [json.loads(each) for each in [text]]
        def charge():
            try:
                pay("{")
            except ValueError as error:
                raise ExceptionGroup("two", [error, KeyError("x")]) from error
        """)
    )
    run = "import traceback, orders.handlers\ntry: orders.handlers.{}\nexcept Exception: traceback.print_exc()"

    def said(call: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", run.format(call)], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stderr

    assert find_failure_location(said("pay('{')"), HANDLER) == "orders/handlers.py:pay"
    assert find_failure_location(said("charge()"), HANDLER) == "orders/handlers.py:charge"


def test_a_recursion_has_its_place():
    def again() -> None:
        again()

    try:
        again()
    except RecursionError as error:
        text = "".join(traceback.format_exception(error))
    assert find_failure_location(text) == "unit/test_failure_location.py:again"


SPRING = """\
org.springframework.kafka.listener.ListenerExecutionFailedException: Listener failed; a: b
\tat org.springframework.kafka.listener.adapter.MessagingMessageListenerAdapter.invoke(Adapter.java:1)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.lang.IllegalStateException: no
{}\tat org.springframework.kafka.listener.adapter.HandlerAdapter.invoke(HandlerAdapter.java:56)
\t... 14 more
"""


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        (["shop.Bank.pay(Bank.java:5)"], "shop.Bank.pay"),
        (["java.util.Objects.requireNonNull(Objects.java:1)", "shop.Bank.pay(Bank.java:5)"], "shop.Bank.pay"),
        (["app//shop.Bank.pay(Bank.java:5)"], "shop.Bank.pay"),
        (["java.base@17.0.1/java.util.A.b(A.java)", "my.module@1.0/shop.Bank.pay(Bank.java:5)"], "shop.Bank.pay"),
        (["shop.Bank$$SpringCGLIB$$0.pay(<generated>)"], "shop.Bank.pay"),
        (["shop.Bank$$Lambda$14/0x000000080014c840.run(Unknown Source)"], "shop.Bank.run"),
        ([], "org.springframework.kafka.listener.adapter.HandlerAdapter.invoke"),
    ],
)
def test_of_java_it_is_the_first_frame_of_the_deepest_cause_that_is_no_library_of_java(frames, found):
    assert find_failure_location(SPRING.format("".join(f"\tat {frame}\n" for frame in frames))) == found


def test_of_java_the_frames_in_common_are_looked_for_in_what_it_caused():
    text = """\
shop.Failed: no
\tat shop.Client.call(Client.java:1)
Caused by: java.net.ConnectException: refused
\tat java.base/sun.nio.ch.Net.connect(Net.java:1)
\t... 1 more
"""
    assert find_failure_location(text) == "shop.Client.call"


@given(st.text(), st.text())
@example('File ", line , in ', "")
@example("Traceback (most recent call last):", ".")
@example("Caused by: ", "")
@example("\tat .(", "")
def test_whatever_it_is_given_it_has_an_answer_of_bounded_length(text, handler):
    assert len(find_failure_location(text, handler)) <= LONGEST


LINES = (
    "Traceback (most recent call last):",
    '  File "/a/b.py", line 1, in f',
    "  | ",
    "  + ",
    "Caused by: x",
    "\tat a.B.c(D.java)",
    "    code",
    "ValueError: x",
    "",
    CHAINED.strip(),
    "File ",
    '", line ',
)


@given(st.lists(st.sampled_from(LINES)))
def test_lines_of_tracebacks_in_any_order_have_an_answer(lines):
    assert len(find_failure_location("\n".join(lines))) <= LONGEST


@pytest.mark.parametrize(
    "text",
    [
        "\tat " + "a.$$" * 500_000 + "(",
        'File "' + "/python3.1" * 500_000 + '", line 1, in f',
        ("During handling of the above exception, another exception occurred:\n") * 50_000,
        "Traceback (most recent call last):\n" * 50_000,
        "|+- \t" * 500_000,
        "Caused by: \n" * 500_000,
    ],
)
def test_hostile_text_is_read_within_a_moment(text):
    # Of the processor, which others' work does not lengthen; what takes the square of a text's length takes hours.
    begun = time.thread_time()
    find_failure_location(text, HANDLER)
    assert time.thread_time() - begun < 5
