"""The messages of one call of a bulk handler, and what the handler says of single ones."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, overload

from bridge.errors import CannotSettle
from bridge.formats.delivery import Message, settle_together
from bridge.formats.user_database import SessionTransaction
from tasks.declaration.value_codec import NOT_ITS_FAULT
from tasks.errors import RetryLater, Undecodable


class Messages(Sequence[Message]):
    """The messages of one call of a bulk handler, in the order of their offsets.

    The n-th message has the n-th value. A test makes one by `Messages([Message("orders", 0, 7)])`.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = tuple(messages)
        self._blamed: dict[int, BaseException] = {}
        #: The messages marked by `settle_with`, and its transaction.
        self._marked: frozenset[int] = frozenset()
        self._transaction: SessionTransaction | None = None

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def fail(self, index: int, error: BaseException) -> None:
        """Fail one message with an error: its delivery ends as if a handler for it alone had raised that.

        The others are done when the handler returns. If it raises instead, they run again without this one.

        Parameters:
            error: an exception, raised or not; `DeadLetter`, `RetryLater` and the like mean what they mean if raised.

        Raises:
            IndexError: there is no such message.
            TypeError: the error is no exception.
            CannotSettle: `settle_with` has marked the message in a transaction that goes on.
        """
        self._check_index("fail", index)
        given: object = error
        if not isinstance(given, BaseException):
            raise TypeError(f"messages.fail takes an exception, such as DeadLetter('why'); it was given {given!r}.")
        self._blame("fail", index, error)

    def later(self, index: int, delay: float, why: str = "") -> None:
        """Run one message again after a delay; it spends no retry, as with `RetryLater`.

        Parameters:
            delay: seconds, from 0 to a year.
            why: for the log.

        Raises:
            IndexError: there is no such message.
            ValueError: the delay is negative, longer than a year, or no number.
            CannotSettle: `settle_with` has marked the message in a transaction that goes on.
        """
        self._check_index("later", index)
        self._blame("later", index, RetryLater(delay, why))

    def settle_with(self, session: Any) -> None:
        """Write "done" for all messages that are not failed or put off, in the handler's own database transaction.

        Call it after `fail` and `later`. If an earlier run has committed the work of some, the handler is called again
        with the others.

        Parameters:
            session: as for `Message.settle_with`.

        Raises:
            AlreadySettled: an earlier run committed the work of some messages; do not catch it.
            CannotSettle: Django's connection has no transaction.
        """
        marked = [index for index in range(len(self)) if index not in self._blamed]
        self._transaction = settle_together([self._messages[index] for index in marked], session)
        self._marked = frozenset(marked)

    @property
    def blamed(self) -> Mapping[int, BaseException]:
        """The errors of the messages that the handler has failed or put off, by index."""
        return MappingProxyType(self._blamed)

    def _check_index(self, method: str, index: int) -> None:
        given: object = index
        if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < len(self):
            raise IndexError(
                f"messages.{method} takes the index of a message, from 0 to {len(self) - 1}; it was given {given!r}."
            )

    def _blame(self, method: str, index: int, error: BaseException) -> None:
        if index in self._marked and self._transaction is not None and self._transaction.goes_on:
            raise CannotSettle(
                f"messages.{method}({index}): messages.settle_with has marked this message done in the transaction: "
                f"call {method} before settle_with."
            )
        self._blamed[index] = error

    def __repr__(self) -> str:
        return f"Messages({[message.coordinates for message in self]})"


class BulkCall:
    """One call of a bulk handler, whose messages are known by their positions.

    Parameters:
        messages: those to handle.
        set_aside: by position, the errors of those that the handler is not given.

    Attributes:
        set_aside: also the errors of values that do not decode.
        given: the messages that the handler is given.
    """

    def __init__(self, messages: Sequence[Message], set_aside: Mapping[int, BaseException]) -> None:
        self.messages = messages
        self.set_aside = dict(set_aside)
        self.given = Messages(())
        self._positions: list[int] = []

    def decode(self, decode: Callable[[Message], Any]) -> list[Any]:
        """Decode the values, and return those that the handler is given; the others are set aside."""
        values = []
        for position, message in enumerate(self.messages):
            if position in self.set_aside:
                continue
            try:
                value = decode(message)
            except (Undecodable, *NOT_ITS_FAULT) as error:
                self.set_aside[position] = error
                continue
            values.append(value)
            self._positions.append(position)
        self.given = Messages([self.messages[position] for position in self._positions])
        return values

    @property
    def blamed(self) -> dict[int, BaseException]:
        """The errors of the messages that the handler has failed or put off, by position."""
        return {self._positions[index]: error for index, error in self.given.blamed.items()}

    @property
    def committed(self) -> frozenset[int]:
        """The positions of the messages whose work an earlier run has committed, as `settle_with` found."""
        return frozenset(
            position
            for position in self._positions
            if (outbox := self.messages[position].outbox) is not None and outbox.committed_before
        )
