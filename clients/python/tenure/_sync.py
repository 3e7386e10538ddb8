"""Drives flows with sockets, on the thread of the caller."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import Any, Optional, TypeVar, cast

from ._core import CONNECT_MAX, Effect, Flow, Open, Pause, Read, now
from ._http import NoAnswer

T = TypeVar("T")


class Connection:
    """Does what flows ask for. `close` may be called from another thread, and ends what waits."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self._socket: Optional[socket.socket] = None
        self._lock = threading.Lock()

    def do(self, effect: Effect) -> Any:
        try:
            if isinstance(effect, Read):
                return self._read(effect)
            self.drop()
            if isinstance(effect, Pause):
                self.closed.wait(effect.seconds)
                return None
            return self._open(effect)
        except OSError as error:
            return no_answer(error, sent=True)

    def _open(self, effect: Open) -> Optional[NoAnswer]:
        end, address = now() + effect.timeout, effect.address
        try:
            opened = socket.create_connection((address.host, address.port), timeout=min(CONNECT_MAX, effect.timeout))
            if address.tls:
                opened = wrapped(opened, address.host)
        except OSError as error:
            return no_answer(error, sent=False)
        with self._lock:
            self._socket = opened
        if self.closed.is_set():
            self.drop()
        opened.settimeout(max(end - now(), 0.01))
        opened.sendall(effect.request)
        return None

    def _read(self, effect: Read) -> bytes:
        opened = self._socket
        if opened is None:
            raise OSError("closed")
        opened.settimeout(max(effect.timeout, 0.001))
        return opened.recv(65536)

    def drop(self) -> None:
        """Ends the connection; flows may open another."""
        with self._lock:
            found, self._socket = self._socket, None
        if found is not None:
            try:
                found.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads
            except OSError:
                pass
            found.close()

    def close(self) -> None:
        self.closed.set()
        self.drop()


def wrapped(opened: socket.socket, host: str) -> socket.socket:
    try:
        return ssl.create_default_context().wrap_socket(opened, server_hostname=host)
    except BaseException:
        opened.close()
        raise


def no_answer(error: Exception, sent: bool) -> NoAnswer:
    timed_out = isinstance(error, (socket.timeout, TimeoutError))
    why = "it did not answer in time" if timed_out else str(error) or type(error).__name__
    return NoAnswer(why, sent, isinstance(error, ConnectionRefusedError))


def run(flow: Flow[T]) -> T:
    """Drives a flow to its end."""
    connection = Connection()
    answer: Any = None
    try:
        while True:
            answer = connection.do(flow.send(answer))
    except StopIteration as end:
        return cast(T, end.value)
    finally:
        connection.close()
