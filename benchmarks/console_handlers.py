"""Handlers of a shop, of which the desk with a million dead letters has some: the console names and asks them."""

from typing import Any, Final

from tasks import handler

#: By a handler's name, its topic.
TOPICS: Final = {
    f"shop.{part}.handlers.on_{number}": f"topic{(number + 4 * at) % 6}"
    for at, part in enumerate(("orders", "mails", "stock"))
    for number in range(4)
}


def _made(name: str, topic: str) -> Any:
    @handler(topic, name=name)
    def handle(order: dict[str, object]) -> None:
        """Takes an order."""

    return handle


HANDLERS: Final = [_made(name, topic) for name, topic in TOPICS.items()]
