"""The outside world of this example, simulated: a bank and a mail server that fail as an order asks."""

import time


class CardDeclined(Exception):
    """The bank has decided; asking again gives the same answer."""


class BankBusy(Exception):
    """The bank asks for patience, as HTTP does with 429 and `Retry-After`."""

    def __init__(self, retry_after: float) -> None:
        super().__init__("the bank is busy")
        self.retry_after = retry_after


class BankError(Exception):
    """An error of a client library that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text for this code")


class NoSuchMailbox(Exception):
    """The mail server knows no such address."""


def charge_card(euros: float, trouble: str, attempt: int) -> str:
    """Take `euros` from a card; the bank works in 30 ms."""
    time.sleep(0.03)
    match trouble:
        case "bank away" if attempt <= 2:
            raise ConnectionError("the bank does not answer")
        case "bank gone":
            raise ConnectionError("the bank does not answer")
        case "bank busy" if attempt == 1:
            raise BankBusy(retry_after=2)
        case "bank closed":
            raise BankBusy(retry_after=12 * 3600)
        case "bank hangs" if attempt == 1:
            time.sleep(3)
        case "declined":
            raise CardDeclined("insufficient funds")
        case "unprintable":
            raise BankError
    return f"{euros:.2f} EUR"


def send_mail(address: str, text: str, trouble: str, attempt: int) -> None:
    """Send a mail; the server works in 20 ms."""
    time.sleep(0.02)
    match trouble:
        case "mail away" if attempt <= 2:
            raise ConnectionError("the mail server does not answer")
        case "mail gone":
            raise ConnectionError("the mail server does not answer")
        case "no mailbox":
            raise NoSuchMailbox(f"{address}: no such mailbox here")
