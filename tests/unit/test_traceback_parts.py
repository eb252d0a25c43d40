"""What is promised of a traceback in parts: the user's frames stand alone, and no line is missing."""

import pytest

from bridge.deadletters.model.traceback_parts import split_traceback

PYTHON = """Traceback (most recent call last):
  File "/usr/lib/python3.13/site-packages/celery/app/trace.py", line 453, in trace_task
    R = fun()
        ^^^^^
  File "/usr/lib/python3.13/site-packages/tasks/execution/batch_run.py", line 143, in run
    call()
  File "/app/orders/handlers.py", line 57, in charge
    pay(order)
  File "/app/orders/bank.py", line 9, in pay
    client.post()
  File "/usr/lib/python3.13/site-packages/requests/api.py", line 1, in post
    raise Timeout
requests.Timeout: no answer
of two lines
"""
JAVA = """java.lang.IllegalStateException: no
\tat shop.Bank.pay(Bank.java:5)
\tat org.springframework.kafka.Listener.run(Listener.java:9)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def test_frames_of_other_code_that_follow_each_other_are_one_part_and_the_users_one_each():
    (found,) = split_traceback(PYTHON, "orders.handlers.charge")
    assert [(part.what, part.frames) for part in found.parts] == [
        ("said", 0),
        ("theirs", 2),
        ("yours", 1),
        ("yours", 1),
        ("theirs", 1),
        ("said", 0),
    ]
    assert found.parts[2].lines == ['  File "/app/orders/handlers.py", line 57, in charge', "    pay(order)"]
    assert found.raised_at == 3


@pytest.mark.parametrize("text", [PYTHON, JAVA, PYTHON + JAVA, "", "nothing of the kind\n\n  File \n", "\n\n"])
def test_no_line_that_says_something_is_missing(text):
    parts = [part for each in split_traceback(text, "orders.handlers.charge") for part in each.parts]
    found = [line for part in parts for line in part.lines if line.strip()]
    assert found == [line for line in text.splitlines() if line.strip()]


def test_of_java_the_users_frame_is_known_and_the_first_is_where_it_was_raised():
    (found,) = split_traceback(JAVA)
    assert [part.what for part in found.parts] == ["said", "yours", "theirs"]
    assert found.raised_at == 1


def test_causes_come_one_by_one_each_with_its_own_last_line():
    chain = "KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n" + PYTHON
    found = split_traceback(chain, "orders.handlers.charge")
    assert [each.title for each in found] == ["KeyError: 'a'", "of two lines"]
