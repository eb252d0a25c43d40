"""One console process."""

import logging

import uvicorn

from bridge.web.app import application
from bridge.web.console import Console

logger = logging.getLogger("bridge")


def serve(console: Console, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C, on this machine alone: it has no users yet.

    Raises:
        OSError: the port is taken.
    """
    link = f"http://localhost:{port}/sign-in/{console.sessions.new_link()}"
    logger.info("the console has no users, so it listens on this machine alone; this link opens it, once: %s", link)
    config = uvicorn.Config(
        application(console), host="127.0.0.1", port=port, log_config=None, access_log=False, server_header=False
    )
    uvicorn.Server(config).run()
