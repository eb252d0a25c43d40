"""Connections to services that a shadow is allowed by name: the parent opens them, and the sealed process gets them.

The kernel refuses every connection of the sealed process, so that nothing but Python's own sockets can ask for one.
"""

import errno
import json
import os
import socket
import threading
from collections.abc import Mapping
from typing import Any, Final

from lossless.background_thread import start_thread

#: Seconds for opening a connection.
SECONDS: Final = 5.0

AddressList = list[tuple[Any, ...]]


class SocketBroker:
    """The broker of one shadow.

    Parameters:
        allowed: services by their addresses, `pay:443`.

    Attributes:
        used: the addresses to which connections were opened.
    """

    def __init__(self, allowed: frozenset[str]) -> None:
        self._addresses: Mapping[str, AddressList | str] = {address: _resolve(address) for address in allowed}
        self._names = {
            (found[4][0], found[4][1]): address
            for address, addresses in self._addresses.items()
            if not isinstance(addresses, str)
            for found in addresses
        }
        self.used: set[str] = set()
        self._ends: tuple[socket.socket, ...] = ()

    def begin(self) -> list[int]:
        """Serve the next run, in the parent; return the files that it keeps."""
        if not self._addresses:
            return []
        ours, theirs = self._ends = socket.socketpair()
        served = ours.dup()
        start_thread("shadow connections", lambda: self._serve(served))
        return [theirs.fileno()]

    def finish(self) -> None:
        """End the service of a run."""
        for end in self._ends:
            end.close()
        self._ends = ()

    def _serve(self, ours: socket.socket) -> None:
        with ours, ours.makefile("rb") as requests:
            for line in requests:
                place = json.loads(line)
                host, port = place[0], place[1]
                try:
                    if (host, port) not in self._names:
                        raise PermissionError(errno.EACCES, "not allowed")
                    with socket.create_connection((host, port), SECONDS) as opened:
                        opened.settimeout(None)
                        self.used.add(self._names[host, port])
                        socket.send_fds(ours, [b"0"], [opened.fileno()])
                except OSError as error:
                    try:
                        ours.send(str(error.errno or errno.ETIMEDOUT).encode())
                    except OSError:
                        return

    def enter(self) -> None:
        """Have Python's sockets ask the broker, in the process of a run, for good."""
        if not self._addresses:
            return
        lock = threading.Lock()
        connect, connect_ex, getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

        def try_to_connect(connection: socket.socket, address: Any) -> int | None:
            if not isinstance(address, tuple) or tuple(address[:2]) not in self._names:
                return None
            with lock:
                return self._ask(connection, address)

        def connect_allowed(connection: socket.socket, address: Any) -> None:
            code = try_to_connect(connection, address)
            if code is None:
                connect(connection, address)
            elif code:
                raise OSError(code, os.strerror(code))

        def connect_ex_allowed(connection: socket.socket, address: Any) -> int:
            code = try_to_connect(connection, address)
            return connect_ex(connection, address) if code is None else code

        def find_addresses(host: Any, port: Any, family: int = 0, *args: Any, **options: Any) -> Any:
            found = self._find_addresses(host, port)
            if found is None:
                return getaddrinfo(host, port, family, *args, **options)
            return [each for each in found if family in (0, each[0])]

        patched: Any = socket.socket
        patched.connect, patched.connect_ex = connect_allowed, connect_ex_allowed
        socket.getaddrinfo = find_addresses

    def _ask(self, connection: socket.socket, address: Any) -> int:
        """Give a socket the connection that the parent opens; return 0, or the number of its error."""
        theirs = self._ends[1]
        theirs.sendall(json.dumps([address[0], address[1]]).encode() + b"\n")
        said, files, _, _ = socket.recv_fds(theirs, 16, 1)
        if not files:
            return int(said or errno.ECONNREFUSED)
        os.dup2(files[0], connection.fileno())
        os.close(files[0])
        # The new connection waits; the handler's may not.
        connection.settimeout(connection.gettimeout())
        return 0

    def _find_addresses(self, host: Any, port: Any) -> AddressList | None:
        """Return the addresses of an allowed name, or of one of its addresses; `None`: it is not allowed."""
        name = host.decode() if isinstance(host, bytes) else host
        named = self._addresses.get(f"{name}:{port}")
        if isinstance(named, str):
            raise socket.gaierror(socket.EAI_NONAME, named)
        if named is not None or not str(port).isdecimal():
            return named
        found = self._addresses.get(self._names.get((name, int(port)), ""), "")
        return None if isinstance(found, str) else [each for each in found if each[4][0] == name]


def _resolve(address: str) -> AddressList | str:
    """Return the addresses of a name and port; or why there are none."""
    host, _, port = address.rpartition(":")
    try:
        return [*socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)]
    except OSError as error:
        return str(error)
