"""What sets a group's letters apart from what its handler has handled, on real servers."""

import json

from bridge.deadletters.masking.letter_mask import NO_MASKS
from bridge.deadletters.model.letter_filter import LetterFilter
from tests.delivery_checks import choose
from tests.desk_of_stack import desk, record
from tests.processes import Stack, eventually


def _produce(stack: Stack, *values: object, partition: int) -> None:
    for number, value in enumerate(values):
        stack.producer.produce(stack.topic("many"), json.dumps(value).encode(), b"%d" % number, partition=partition)
    assert stack.producer.flush(30) == 0


def test_what_failures_have_and_successes_lack_is_found_in_kafka_and_by_the_ledger(stack: Stack):
    choose(stack, {"many": {"commit": "completion"}})
    stack.make_topics("many", partitions=3)
    stack.worker(wait=False)
    stack.bridge()
    for partition in range(3):
        _produce(stack, *[{"to": {"country": "DE"}, "currency": "EUR"}] * 40, partition=partition)
    _produce(stack, *[{"to": {"country": "CH"}, "currency": "EUR", "dead": True}] * 12, partition=1)
    eventually(lambda: len(stack.done("many")) == 120, 60)
    with desk(stack, "many", many={"commit": "completion"}) as here:
        record(stack, here, "many", 12)
        (group,) = here.groups.all(LetterFilter())
        found = here.common(NO_MASKS).find_traits(group, here.handled)
        assert (found.silent, found.read, len(found.handled.traits)) == ("", 132, 120)
        told = {(each.what, each.name, each.says): (each.letters, each.handled) for each in found.traits}
        assert told == {
            ("field", "to.country", "CH"): (12, 0),
            ("field", "dead", "true"): (12, 0),
            ("partition", stack.topic("many"), "1"): (12, 40),
        }
