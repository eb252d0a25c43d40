"""What a program asks under an idempotency key is done once, also by two processes and across the death of one."""

import threading

import pytest
from sqlalchemy import func, select, update

from bridge.deadletters.accounts.idempotency_key import AnsweredRequest, BegunRequest, IdempotentRequests
from bridge.deadletters.db import audit_rows
from bridge.deadletters.db import table_definitions as tables
from bridge.errors import DeskUnavailable, KeyReused, RequestTakenOver, RequestUnderWay

KEY, WISH, OTHER = b"k" * 32, b"w" * 32, b"o" * 32


@pytest.fixture
def requests(database):
    return IdempotentRequests(database)


def act(database, begun, said="done", then="SELECT 1"):
    with database.doing(begun.claim).writing() as connection:
        audit_rows.write_entry(connection, 1, "token deploy", "note", said)
        connection.exec_driver_sql(then)


def acts(database):
    with database.reading() as connection:
        return connection.execute(select(func.count()).select_from(tables.trail)).scalar_one()


def dies(database):
    """As if the process that does it had died, and its time were over."""
    with database.writing() as connection:
        connection.execute(update(tables.requests).values(claimed_until=1))


def test_what_was_answered_is_answered_again(requests, database):
    begun = requests.begin(KEY, WISH)
    act(database, begun)
    requests.answered(begun.claim, 201, "it")
    assert requests.begin(KEY, WISH) == AnsweredRequest(201, "it")
    assert isinstance(requests.begin(OTHER, WISH), BegunRequest)


def test_another_wish_under_the_same_key_is_refused(requests):
    requests.begin(KEY, WISH)
    with pytest.raises(KeyReused):
        requests.begin(KEY, OTHER)


def test_what_is_done_just_now_is_not_begun_by_another(requests):
    requests.begin(KEY, WISH)
    with pytest.raises(RequestUnderWay):
        requests.begin(KEY, WISH)


def test_of_many_at_once_one_begins(requests):
    begun, refused = [], []
    gate = threading.Barrier(8)

    def ask():
        gate.wait()
        try:
            begun.append(requests.begin(KEY, WISH))
        except RequestUnderWay as error:
            refused.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (len(begun), len(refused)) == (1, 7)


def test_who_takes_over_from_one_that_died_before_it_acted_does_it(requests, database):
    requests.begin(KEY, WISH)
    dies(database)
    begun = requests.begin(KEY, WISH)
    assert isinstance(begun, BegunRequest)
    assert begun.done is None


def test_who_takes_over_from_one_that_died_after_it_acted_hears_what_was_done(requests, database):
    act(database, requests.begin(KEY, WISH), "by the first")
    dies(database)
    begun = requests.begin(KEY, WISH)
    assert isinstance(begun, BegunRequest)
    assert begun.done is not None
    assert begun.done.said == "by the first"


def test_one_that_was_away_for_too_long_does_nothing_once_another_has_taken_over(requests, database):
    slow = requests.begin(KEY, WISH)
    dies(database)
    act(database, requests.begin(KEY, WISH))
    with pytest.raises(RequestTakenOver):
        act(database, slow)
    requests.answered(slow.claim, 500, "no")
    assert acts(database) == 1
    with pytest.raises(RequestUnderWay):
        requests.begin(KEY, WISH)


def test_what_could_not_be_done_is_begun_anew_at_once(requests, database):
    begun = requests.begin(KEY, WISH)
    with pytest.raises(DeskUnavailable):
        act(database, begun, "no", "SELECT nothing FROM nowhere")
    requests.leave(begun.claim)
    again = requests.begin(KEY, WISH)
    assert isinstance(again, BegunRequest)
    assert again.done is None
    assert acts(database) == 0


def test_what_was_done_and_not_answered_is_not_done_again_when_it_is_left(requests, database):
    begun = requests.begin(KEY, WISH)
    act(database, begun)
    requests.leave(begun.claim)
    again = requests.begin(KEY, WISH)
    assert isinstance(again, BegunRequest)
    assert again.done is not None


def test_a_key_is_forgotten_after_a_day(requests, database):
    begun = requests.begin(KEY, WISH)
    requests.answered(begun.claim, 200, "")
    with database.writing() as connection:
        connection.execute(update(tables.requests).values(until=1))
    assert isinstance(requests.begin(KEY, OTHER), BegunRequest)
