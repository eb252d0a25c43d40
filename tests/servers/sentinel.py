"""A Redis with a replica and a Sentinel that watches them, all real processes."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from tests.project_process import eventually
from tests.servers.process import ServerProcess, free_port
from tests.servers.redis import RedisServer, program

MASTER = "mymaster"


class SentinelServers:
    """A master, a replica, and one Sentinel that promotes the replica within two seconds of the master's end.

    `password` is the Sentinel's own, `settings` are further options of both servers.
    """

    def __init__(self, folder: Path, password: str = "", **settings: str) -> None:
        self.folder, self._password, self._settings = folder, password, {"repl_diskless_sync_delay": "0", **settings}
        self.port = free_port()
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """The addresses of a Sentinel that is down and of this one, with the master's name."""
        return self.url_of("")

    def url_of(self, login: str) -> str:
        """The same with a user and password of the master, `app:secret`."""
        login = f"{login}@" if login else ""
        addresses = (f"sentinel://{login}127.0.0.1:{port}" for port in (1, self.port))
        return f"{';'.join(addresses)}?master_name={MASTER}"

    def __enter__(self) -> Self:
        with self._stack as stack:
            self.one, self.two = (stack.enter_context(RedisServer(**self._settings)) for _ in range(2))
            self.at_one, self.at_two = (stack.enter_context(server.client()) for server in (self.one, self.two))
            self.at_two.replicaof("127.0.0.1", str(self.one.port))
            conf = self.folder / "sentinel.conf"
            lines = (
                f"monitor {MASTER} 127.0.0.1 {self.one.port} 1",
                f"down-after-milliseconds {MASTER} 1000",
                f"failover-timeout {MASTER} 3000",
            )
            own = f"port {self.port}\n" + (f"requirepass {self._password}\n" if self._password else "")
            conf.write_text(own + "".join(f"sentinel {line}\n" for line in lines))
            client = redis.Redis(port=self.port, password=self._password or None, socket_timeout=5)
            self.client: Any = stack.enter_context(client)
            process = ServerProcess([str(program()), str(conf), "--sentinel"], self.folder, self._answers, patience=20)
            stack.callback(process.kill)
            process.start()
            eventually(lambda: len(self.client.execute_command("SENTINEL", "REPLICAS", MASTER)) == 1, 20)
            eventually(lambda: self.at_two.info("replication")["master_link_status"] == "up", 20)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def cut_replication(self) -> None:
        """From now on the replica gets nothing: when it is promoted, all that is written until then is lost."""
        self.at_two.config_set("masterauth", "not the password")
        self.at_one.execute_command("CLIENT", "KILL", "TYPE", "replica")

    def kill_master(self) -> None:
        """kill -9 the first master, and wait until the replica is master."""
        self.one.kill()
        eventually(lambda: self.at_two.role()[0] == b"master", 20, "the replica is promoted")

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False
