"""A real RabbitMQ, on 127.0.0.1, with an Erlang port mapper, a cookie and a node name of its own."""

import os
import shutil
import subprocess
from contextlib import suppress
from glob import glob
from typing import Any

import amqp

from tests.servers import newer
from tests.servers.process import ServerProcess, free_port
from tests.servers.server import Server


def _program(root: str) -> str | None:
    """The server's own script: Debian's wrapper around it runs as one user, in one folder."""
    scripts = glob(f"{root}/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")
    return next(iter(sorted(scripts, reverse=True)), None)


def _port_mapper(root: str) -> str | None:
    found = next(iter(glob(f"{root}/usr/lib/erlang/erts-*/bin/epmd")), None)
    return found if root else shutil.which("epmd") or found


def missing(root: str = "") -> str | None:
    """Why no RabbitMQ can be started here and what to do about it, or None if one can."""
    if _program(root) is not None and _port_mapper(root) is not None:
        return None
    return newer.MISSING if root else "no RabbitMQ: rabbitmq-server is missing (on Debian: apt install rabbitmq-server)"


class RabbitmqServer(Server):
    """A RabbitMQ with the user `guest`, who may do everything in the default virtual host.

    Parameters:
        root: the folder that its package was unpacked into, with Erlang; empty for the one that is installed.
    """

    def __init__(self, root: str = "") -> None:
        super().__init__("rabbitmq")
        mapper = free_port()
        # For a newer one a short time that a consumer may hold a message; it is looked at each second below.
        timeout = "consumer_timeout = 5000\n" if root else ""
        (self.folder / "rabbitmq.conf").write_text(
            f"disk_free_limit.absolute = 50MB\nlog.console.level = warning\n{timeout}"
        )
        environ = {
            "PATH": f"{root}/usr/lib/erlang/bin:{os.environ['PATH']}" if root else os.environ["PATH"],
            "HOME": str(self.folder),  # of Erlang's cookie
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"t{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            # The script then becomes the server, instead of starting it beside itself.
            "RABBITMQ_ALLOW_INPUT": "true",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput +S 1:1 -rabbit channel_tick_interval 1000",
        }
        self._environ = environ
        given = [f"{name}={value}" for name, value in environ.items()]
        self._mapper = ServerProcess(
            ["env", *given, _port_mapper(root) or "epmd", "-port", str(mapper)], self.folder, lambda: True, patience=5
        )
        self._program = _program(root) or "rabbitmq-server"
        server = ["env", *given, self._program]
        self.process = ServerProcess(server, self.folder, self._answers, patience=60)

    def start(self) -> None:
        if not self._mapper.running:
            self._mapper.start()
        super().start()

    def close(self) -> None:
        self.process.kill()
        self._mapper.kill()
        super().close()

    @property
    def url(self) -> str:
        """Its default virtual host, which all share."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def waiting(self, queue: str) -> int:
        """How many messages of a queue nobody holds."""
        with amqp.Connection(f"127.0.0.1:{self.port}", "guest", "guest") as connection:
            channel: Any = connection.channel()
            return int(channel.queue_declare(queue, passive=True).message_count)

    def block_publishers(self) -> None:
        """Raise the memory alarm, as a RabbitMQ does that has no memory left."""
        self._control("set_vm_memory_high_watermark", "0.0000001")
        # Its connections hear of it a moment later: a publish that nobody confirms is the sign.
        connection = amqp.Connection(f"127.0.0.1:{self.port}", "guest", "guest", confirm_publish=True)
        connection.connect()
        channel: Any = connection.channel()
        with suppress(TimeoutError):
            while True:
                channel.basic_publish_confirm(amqp.Message(""), "", "nobody", confirm_timeout=1)
        connection.collect()  # it would wait for the alarm's end to close

    def let_publishers_go_on(self) -> None:
        """End the memory alarm."""
        self._control("set_vm_memory_high_watermark", "0.9")

    def _control(self, *command: str) -> None:
        program = self._program.removesuffix("rabbitmq-server") + "rabbitmqctl"
        done = subprocess.run(
            [program, *command], env={**os.environ, **self._environ}, capture_output=True, timeout=60, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _answers(self) -> bool:
        try:
            with amqp.Connection(f"127.0.0.1:{self.port}", "guest", "guest", connect_timeout=1) as connection:
                return bool(connection.connected)
        except (OSError, amqp.AMQPError):
            return False
