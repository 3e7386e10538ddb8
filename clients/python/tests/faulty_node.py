"""A small HTTP server that answers what a test tells it to, drops connections, or hangs."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any, Callable, List, NamedTuple, Optional, Tuple, Union

DROP = "drop"  # carries the request out, and closes the connection without an answer
HANG = "hang"  # carries it out, and never answers
Answer = Union[str, Tuple[int, Any], Tuple[int, Any, str]]


class Heard(NamedTuple):
    method: str
    path: str
    head: str
    body: Any
    at: float


def problem(status: int, name: str) -> Tuple[int, Any]:
    return status, {"type": f"urn:tenure:problem:{name}", "title": "t", "status": status, "detail": f"about {name}"}


class FaultyNode:
    def __init__(self, answer: Callable[[Heard], Answer]) -> None:
        self.answer = answer
        self.heard: List[Heard] = []
        self._lock = threading.Lock()
        self._hanging: List[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        request = self._read(connection)
        if request is None:
            return
        with self._lock:
            self.heard.append(request)
        answer = self.answer(request)
        if answer == HANG:
            self._hanging.append(connection)
            return
        if not isinstance(answer, str):
            status, body = answer[0], b"" if answer[1] is None else json.dumps(answer[1]).encode()
            more = answer[2] if len(answer) > 2 else ""
            head = f"HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
        connection.close()

    def _read(self, connection: socket.socket) -> Optional[Heard]:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return None
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        text = head.decode()
        length = next((int(line[15:]) for line in text.split("\r\n") if line.lower().startswith("content-length:")), 0)
        while len(body) < length:
            body += connection.recv(65536)
        method, path, _ = text.split("\r\n")[0].split(" ")
        return Heard(method, path, text, json.loads(body) if body else None, time.monotonic())

    def close(self) -> None:
        self._listener.close()
        for connection in self._hanging:
            connection.close()


def in_turn(*answers: Answer) -> Callable[[Heard], Answer]:
    """These answers one after the other, the last one for ever."""
    left = list(answers)
    lock = threading.Lock()

    def answer(_: Heard) -> Answer:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return answer
