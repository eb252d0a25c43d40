"""Whatever becomes of a log (its end is lost, its topic made again, leaders change): each record it has is handled.

The bridge here is small: it decides with the real functions and moves in the real order. Kafka's client goes on where
it was, but for what it checks by leader epochs, as the real one does.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from bridge.consumer.log_identity import CommitEvidence, compare_records, decide_log
from bridge.ledger import KnownLog
from tests.hypothesis_profiles import examples


class Model(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        #: The log: leader epoch and identity of each record.
        self.topic, self.epoch, self.log = 0, 0, list[tuple[int, int]]()
        self.made = self.position = self.expected = 0
        self.committed: tuple[int, str, int] | None = None
        self.book: KnownLog | None = None
        self.fates: dict[str, set[int]] = {}
        self.handled: set[int] = set()
        self.start_bridge()

    # Kafka

    @rule(number=st.integers(1, 4))
    def produce(self, number: int) -> None:
        for _ in range(number):
            self.log.append((self.epoch, self.made))
            self.made += 1

    @rule()
    def another_leader(self) -> None:
        self.epoch += 1

    @precondition(lambda self: self.log)
    @rule(kept=st.integers(0, 20))
    def the_log_loses_its_end(self, kept: int) -> None:
        del self.log[kept:]
        self.epoch += 1
        self.check_position(self.read_epoch)

    @rule()
    def the_topic_is_made_again(self) -> None:
        self.topic, self.epoch, self.log = self.topic + 1, 0, []
        self.committed = None
        self.check_position(-1)

    def end_of(self, epoch: int) -> int:
        return next((at for at, (wrote, _) in enumerate(self.log) if wrote > epoch), len(self.log))

    def check_position(self, epoch: int) -> None:
        """What the client does by itself."""
        if epoch >= 0:
            self.position = min(self.position, self.end_of(epoch))
        elif self.position > len(self.log):
            self.position = 0

    # The bridge

    @rule()
    def start_bridge(self) -> None:
        self.find_beginning(self.book)

    def find_beginning(self, known: KnownLog | None) -> None:
        offset, log_id, wrote = self.committed or (None, None, -1)
        self.known, met, _ = decide_log(
            known, f"t{self.topic}", CommitEvidence(offset, log_id, wrote), 0, len(self.log)
        )
        self.book = self.known
        first = start = met.offset or 0
        while start in self.of() and start < len(self.log):
            start += 1
        self.position = self.expected = start
        self.read_epoch = met.epoch if met.kept or met.back or start > first else -1
        self.check_position(self.read_epoch)

    def of(self) -> set[int]:
        return self.fates.setdefault(self.known.id, set())

    @rule(number=st.integers(1, 5))
    def read(self, number: int) -> None:
        records = [(at, self.log[at][0]) for at in range(self.position, min(len(self.log), self.position + number))]
        if not records:
            return
        found = compare_records(self.known, self.expected, -1, records)
        read = found.cut is not None and (found.cut < self.expected or any(at >= found.cut for at in self.of()))
        if found.cut is not None and self.known.epoch >= 0 and read:
            self.went_back(found.cut, found.epoch)
        elif found.anew:
            self.find_beginning(self.book)
        else:
            if found.cut is not None:
                self.known = self.book = self.known._replace(epoch=found.epoch)
            for at, epoch in records:
                if at not in self.of():
                    self.handled.add(self.log[at][1])
                    self.of().add(at)
                self.position, self.expected, self.read_epoch = at + 1, at + 1, epoch

    def went_back(self, cut: int, epoch: int) -> None:
        start, before = min(cut, self.expected), self.of()
        log = self.known._replace(turn=self.known.turn + 1, epoch=epoch)
        self.fates[log.id] = {at for at in before if start <= at < cut}
        self.committed = (start, log.id, self.log[start - 1][0] if start else -1)
        self.book = log
        self.find_beginning(log)

    @rule()
    def commit(self) -> None:
        if self.expected:
            self.committed = (self.expected, self.known.id, self.read_epoch)

    @rule()
    def look_at_the_topics_id(self) -> None:
        if self.known.topic_id != f"t{self.topic}":
            self.find_beginning(self.book)

    def teardown(self) -> None:
        if not hasattr(self, "log"):
            return
        self.look_at_the_topics_id()
        for _ in range(10 + len(self.log)):
            self.read(5)
        missing = [at for at, (_, record) in enumerate(self.log) if record not in self.handled]
        assert not missing, f"never handled: {missing}"


def test_a_log_that_lost_all_and_has_another_record_since_is_read_from_that() -> None:
    bridge = Model()
    bridge.begin()
    bridge.produce(2)
    bridge.read(2)
    bridge.the_log_loses_its_end(0)
    bridge.commit()
    bridge.produce(1)
    bridge.start_bridge()
    bridge.teardown()


TestLogs = Model.TestCase
TestLogs.settings = settings(max_examples=examples(150), stateful_step_count=25)


def test_what_comes_between_two_starts_into_a_log_that_lost_all_is_read() -> None:
    """The first start finds that the log went back, and dies before it commits anything."""
    bridge = Model()
    bridge.begin()
    bridge.produce(1)
    bridge.read(1)
    bridge.the_log_loses_its_end(0)
    bridge.commit()
    bridge.start_bridge()
    bridge.produce(1)
    bridge.start_bridge()
    bridge.teardown()
