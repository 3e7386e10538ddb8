"""HTTP/1.1 and server-sent events as bytes, without any I/O. Threads and asyncio share it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional
from urllib.parse import urlsplit

HEAD_MAX = 64 * 1024
BODY_MAX = 64 * 1024 * 1024
EVENT_MAX = 1024 * 1024
LINE_MAX = 4096


class BadAnswer(Exception):
    """What came is not HTTP as a node speaks it, or too large."""


class Address:
    """Where a node is."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"not the URL of a node: {url!r}; it looks like http://127.0.0.1:7420")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the URL of a node has no user name and password: pass a token")
        if re.search(r"[\x00-\x20\x7f]", url.strip()):
            raise ValueError(f"not the URL of a node: {url!r}")
        self.tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = parts.port or (443 if self.tls else 80)
        self.prefix = parts.path.rstrip("/")
        self.host_field = parts.netloc
        self.url = f"{parts.scheme}://{parts.netloc}{self.prefix}"


def request_bytes(
    address: Address, method: str, path: str, body: Optional[bytes], token: Optional[str], fields: Mapping[str, str]
) -> bytes:
    head = [f"{method} {address.prefix}{path} HTTP/1.1", f"Host: {address.host_field}", "Connection: close"]
    head += [f"{name}: {value}" for name, value in fields.items()]
    if token is not None:
        head.append(f"Authorization: Bearer {token}")
    if body is not None:
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    text = "\r\n".join(head) + "\r\n\r\n"
    if re.search(r"[^\x20-\x7e\r\n]", text) or text.count("\r\n") != len(head) + 1 or text.count("\n") != len(head) + 1:
        raise ValueError("a request may only have printable ASCII characters in its head")
    return text.encode("ascii") + (body or b"")


@dataclass
class Reply:
    """A whole answer."""

    status: int
    fields: Dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


@dataclass
class NoAnswer:
    """There was no answer. `sent`: the node may have got the request. `refused`: nobody listens there."""

    why: str
    sent: bool
    refused: bool = False


class Incoming:
    """One answer as it comes in: feed it bytes, and get the body."""

    def __init__(self) -> None:
        self.status = 0
        self.fields: Dict[str, str] = {}
        self.done = False
        self._buffer = b""
        self._body: List[bytes] = []
        self._size = 0
        self._left = 0
        self._state = "head"

    @property
    def has_head(self) -> bool:
        return self.status >= 200

    def feed(self, data: bytes) -> None:
        """More bytes; none at all: the other side has closed the connection."""
        if not data:
            if self._state != "until_end":
                raise BadAnswer("the connection was closed in the middle of the answer")
            self.done = True
        self._buffer += data
        while not self.done:
            piece: Optional[bytes] = getattr(self, "_" + self._state)()
            if piece is None:
                break
            self._body.append(piece)
            self._size += len(piece)
            if self._size > BODY_MAX:
                raise BadAnswer("the answer is too large")

    def body(self) -> bytes:
        """What has come of the body since the last time."""
        data = b"".join(self._body)
        self._body, self._size = [], 0
        return data

    def _line(self, most: int) -> Optional[bytes]:
        line, found, rest = self._buffer.partition(b"\r\n")
        if len(line) > (most if found else most + 1):
            raise BadAnswer("a line of the answer is too long")
        if not found:
            return None
        self._buffer = rest
        return line

    def _head(self) -> Optional[bytes]:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if len(head) > HEAD_MAX:
            raise BadAnswer("the head of the answer is too large")
        if not found:
            return None
        self._buffer = rest
        lines = head.decode("latin-1").split("\r\n")
        status = re.fullmatch(r"HTTP/1\.[01] ([1-5][0-9]{2})( .*)?", lines[0])
        if not status:
            raise BadAnswer("it does not speak HTTP/1.1")
        self.status = int(status.group(1))
        if self.status < 200:
            return b""  # 100 and the like: the answer proper follows
        self.fields = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise BadAnswer("a field in the head of the answer cannot be read")
            self.fields[name.lower()] = value.strip()
        length = self.fields.get("content-length")
        if self.status in (204, 304):
            self.done = True
        elif self.fields.get("transfer-encoding", "").lower() == "chunked":
            self._state = "chunk_size"
        elif length is not None:
            if not re.fullmatch(r"[0-9]{1,12}", length):
                raise BadAnswer("the length of the answer cannot be read")
            self._left, self._state = int(length), "sized"
            self.done = self._left == 0
        else:
            self._state = "until_end"
        return b""

    def _take(self, most: int) -> bytes:
        piece, self._buffer = self._buffer[:most], self._buffer[most:]
        return piece

    def _sized(self) -> Optional[bytes]:
        piece = self._take(self._left)
        self._left -= len(piece)
        self.done = not self._left
        return piece or None

    def _until_end(self) -> Optional[bytes]:
        return self._take(len(self._buffer)) or None

    def _chunk_size(self) -> Optional[bytes]:
        line = self._line(LINE_MAX)
        if line is None:
            return None
        size = line.split(b";")[0].strip()
        if not re.fullmatch(rb"[0-9A-Fa-f]{1,8}", size):
            raise BadAnswer("the size of a piece of the answer cannot be read")
        self._left = int(size, 16)
        self._state = "chunk" if self._left else "trailer"
        return b""

    def _chunk(self) -> Optional[bytes]:
        piece = self._take(self._left)
        self._left -= len(piece)
        if not self._left:
            self._state = "chunk_end"
        return piece or None

    def _chunk_end(self) -> Optional[bytes]:
        line = self._line(0)
        if line is None:
            return None
        self._state = "chunk_size"
        return b""

    def _trailer(self) -> Optional[bytes]:
        line = self._line(HEAD_MAX)
        if line is None:
            return None
        self.done = not line
        return b""


@dataclass(frozen=True)
class Event:
    """Something that happened, as a node reports it.

    `name` is the name of the event, such as `leader:changed`, or `missed` if events are missing before the next one. `data` has
    all its fields. `id` is None where the node gave none.
    """

    name: str
    data: Mapping[str, Any] = field(default_factory=dict)
    id: Optional[str] = None


class EventReader:
    """Server-sent events out of bytes."""

    def __init__(self) -> None:
        self._buffer = b""
        self._data: List[str] = []
        self._size = 0
        self._name = ""
        self._id: Optional[str] = None

    def feed(self, data: bytes) -> List[Event]:
        self._buffer += data
        found: List[Event] = []
        while True:
            line, end, rest = self._buffer.partition(b"\n")
            if not end:
                if len(line) > EVENT_MAX:
                    raise BadAnswer("an event is too large")
                return found
            self._buffer = rest
            event = self._line(line.rstrip(b"\r").decode("utf-8", "replace"))
            if event is not None:
                found.append(event)

    def _line(self, line: str) -> Optional[Event]:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data":
            self._size += len(value)
            if self._size > EVENT_MAX:
                raise BadAnswer("an event is too large")
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _dispatch(self) -> Optional[Event]:
        text, name, number = "\n".join(self._data), self._name, self._id
        self._data, self._size, self._name, self._id = [], 0, "", None
        if not text:
            return None
        try:
            data = json.loads(text)
        except ValueError:
            raise BadAnswer("an event is not JSON") from None
        if not isinstance(data, dict):
            raise BadAnswer("an event is not an object")
        return Event(name or str(data.get("event", "")), data, number)
