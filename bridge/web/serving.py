"""One console process."""

import logging
from types import FrameType
from typing import Final

import uvicorn

from bridge.errors import ConsoleRefused
from bridge.web.app import application
from bridge.web.console import Console
from bridge.web.listening import listening
from bridge.web.origins import is_here

logger = logging.getLogger("bridge")

#: Seconds that answers have when it is told to end.
ENDS_WITHIN: Final = 3


def serve(console: Console, host: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises:
        ConsoleRefused: nobody has to sign in, and others than this machine would be served; or the port cannot be had.
        DeskUnavailable: the database did not say whether there are users.
    """
    has_users = console.desk.users.any()
    named = has_users or bool(console.proxy.user_header) or console.issuer is not None
    if not (named or is_here(_in_address(host))):
        raise ConsoleRefused(
            f"This console has no users, so it listens on this machine alone, and not on {host}. Add one first: "
            "bridge deadletters users add NAME --role admin."
        )
    sockets = listening(host, port)
    address = f"http://{_in_address('localhost' if is_here(_in_address(host)) else host)}:{port}"
    if named:
        logger.info("the console listens at %s", address)
    else:
        link = f"{address}/sign-in/{console.sessions.new_link()}"
        logger.info("the console has no users, so it listens on this machine alone; this link opens it, once: %s", link)
    _Server(console, host, port).run(sockets)


class _Server(uvicorn.Server):
    """Who looks at a page when it is told to end is let go, and not cut off with an error in the log."""

    def __init__(self, console: Console, host: str, port: int) -> None:
        super().__init__(_config(console, host, port))
        self._live = console.live

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM or Ctrl-C."""
        self._live.end()
        super().handle_exit(sig, frame)


def _config(console: Console, host: str, port: int) -> uvicorn.Config:
    return uvicorn.Config(
        application(console),
        host=host,
        port=port,
        log_config=None,
        # Where it listens is said already.
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        # `bridge.web.proxies` decides who sends a request.
        # This would take anything on this machine for a proxy.
        proxy_headers=False,
        timeout_graceful_shutdown=ENDS_WITHIN,
    )


def _in_address(host: str) -> str:
    """A host as it stands in an address."""
    return f"[{host}]" if ":" in host else host
