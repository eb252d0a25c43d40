"""The questions of searches for start offsets to the ledger: those of many partitions are answered in one trip.

A search asks one question after another, because most depend on the answers before. The searches of all partitions that
start together go side by side: the trips to Redis grow with the questions of one search, not with the partitions.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from bridge.formats.delivery_identity import Place
from bridge.ledger import Account, Accounts, KnownLog, Ledger, LedgerState, LogHistory
from bridge.ledger.account_progress import AccountProgress
from bridge.ledger.ledger_client import FateSearch
from bridge.ledger.ledger_layout import PAGE

Answer = TypeVar("Answer")

#: Offsets whose fates one trip reads.
OFFSETS_AT_ONCE: Final = 32 * PAGE


class LedgerQuestion(Generic[Answer]):
    """A question or note of one search, with the ledger's answer once it is there."""

    def __init__(self) -> None:
        self._answers: list[Answer] = []

    @property
    def answered(self) -> bool:
        """Return whether the ledger has answered."""
        return bool(self._answers)

    def set_answer(self, answer: Answer) -> None:
        """Take in the answer."""
        self._answers = [answer]

    def ask(self) -> "LedgerSearch[Answer]":
        """Yield this question; return its answer when the search goes on."""
        yield self
        (answer,) = self._answers
        return answer


#: A search: it yields a question and goes on once that is answered, or `None` after a step that took a while.
LedgerSearch = Generator[LedgerQuestion[Any] | None, None, Answer]


class StateQuestion(LedgerQuestion[LedgerState]):
    """The question for the state of the ledger."""


class LogQuestion(LedgerQuestion[KnownLog | None]):
    """The question which log of a partition bridges knew."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place


class LogNote(LedgerQuestion[None]):
    """The note which log a partition has."""

    def __init__(self, place: Place, log: KnownLog) -> None:
        super().__init__()
        self.place, self.log = place, log


class ProgressQuestion(LedgerQuestion[list[AccountProgress]]):
    """The question for the progress of accounts."""

    def __init__(self, accounts: Sequence[Account]) -> None:
        super().__init__()
        self.accounts = accounts


class JoinNote(LedgerQuestion[list[int]]):
    """The note from which offset on the ledger answers for accounts; the answer is the offset in force of each."""

    def __init__(self, accounts: Sequence[Account], first: int) -> None:
        super().__init__()
        self.accounts, self.first = accounts, first


class FateQuestion(LedgerQuestion[list[int | None]]):
    """The question for the first offset of each of some searches for fates."""

    def __init__(self, searches: Sequence[FateSearch]) -> None:
        super().__init__()
        self.searches = searches

    @property
    def size(self) -> int:
        """Return how many offsets are read."""
        return sum(max(0, search.last - search.first + 1) for search in self.searches)


class ReachedNote(LedgerQuestion[LedgerState]):
    """The note what is safe to commit, unless the ledger may have lost data since a state; the answer is its state."""

    def __init__(self, offsets: Mapping[Account, int], since: LedgerState) -> None:
        super().__init__()
        self.offsets, self.since = offsets, since


class LedgerAnswers:
    """The answers of a ledger to the questions of many searches."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._accounts, self._history = ledger, Accounts(ledger), LogHistory(ledger)

    def answer(self, questions: Iterable[LedgerQuestion[Any]]) -> None:
        """Answer questions, all of a kind together; some about fates stay open if they are too many for one trip.

        Raises:
            LedgerUnavailable: some have no answer.
        """
        kinds: defaultdict[type, list[Any]] = defaultdict(list)
        for question in questions:
            kinds[type(question)].append(question)
        answers: Mapping[type, Callable[[Any], None]] = {
            StateQuestion: self._read_state,
            LogQuestion: self._read_logs,
            LogNote: self._note_logs,
            ProgressQuestion: self._read_progress,
            JoinNote: self._join,
            FateQuestion: self._find_fates,
            ReachedNote: self._raise_reached,
        }
        for kind, asked in kinds.items():
            answers[kind](asked)

    def _read_state(self, asked: Sequence[StateQuestion]) -> None:
        state = self._ledger.state()
        for question in asked:
            question.set_answer(state)

    def _read_logs(self, asked: Sequence[LogQuestion]) -> None:
        logs = self._history.read_logs([question.place for question in asked])
        for question in asked:
            question.set_answer(logs.get(question.place))

    def _note_logs(self, asked: Sequence[LogNote]) -> None:
        self._history.note_logs({note.place: note.log for note in asked})
        for note in asked:
            note.set_answer(None)

    def _read_progress(self, asked: Sequence[ProgressQuestion]) -> None:
        found = iter(self._accounts.read_progress([account for question in asked for account in question.accounts]))
        for question in asked:
            question.set_answer([next(found) for _ in question.accounts])

    def _join(self, asked: Sequence[JoinNote]) -> None:
        joined = self._accounts.join_all({account: note.first for note in asked for account in note.accounts})
        for note in asked:
            note.set_answer([joined[account] for account in note.accounts])

    def _find_fates(self, asked: Sequence[FateQuestion]) -> None:
        room = OFFSETS_AT_ONCE
        taken: list[FateQuestion] = []
        # The smallest first: a partition with little to search does not wait for one with much.
        for question in sorted(asked, key=lambda question: question.size):
            room -= question.size
            if taken and room < 0:
                break
            taken.append(question)
        found = iter(self._ledger.find_many([search for question in taken for search in question.searches]))
        for question in taken:
            question.set_answer([next(found) for _ in question.searches])

    def _raise_reached(self, asked: Sequence[ReachedNote]) -> None:
        # A fence for each state: most searches of a trip began with the same one.
        for since in dict.fromkeys(note.since for note in asked):
            notes = [note for note in asked if note.since == since]
            state = self._accounts.raise_reached(
                {account: offset for note in notes for account, offset in note.offsets.items()}, since
            )
            for note in notes:
                note.set_answer(state)
