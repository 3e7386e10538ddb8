"""What both clients share, without any I/O: which node is asked what, and when it is asked again.

Everything a client does is a generator, a `Flow`. It yields what is to be done, and is sent what came of it. `_sync.py` drives flows
with sockets, `_async.py` with asyncio.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
import uuid
from dataclasses import dataclass
from typing import Any, Callable, Generator, List, Mapping, Optional, Sequence, TypeVar, Union
from urllib.parse import quote

from ._errors import TenureError, Unavailable
from ._http import Address, BadAnswer, Event, Incoming, NoAnswer, Reply, request_bytes

DEFAULT_URL = "http://127.0.0.1:7420"
VERSION = "0.1.0"

#: How long a connection may take to open.
CONNECT_MAX = 3.0

#: How long a node may say nothing on a stream of events: it sends a comment every 15 s.
SILENCE_MAX = 40.0

#: The first pause before a node is asked again; it doubles up to the second.
PAUSE_MIN, PAUSE_MAX = 0.1, 2.0

#: The longest that a node may say to wait.
RETRY_AFTER_MAX = 300.0

T = TypeVar("T")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass
class Open:
    """Connect to a node, in place of any other connection, and send it these bytes. The answer is None or `NoAnswer`."""

    address: Address
    request: bytes
    timeout: float


@dataclass
class Read:
    """Give back the next bytes, b"" at their end, or `NoAnswer`."""

    timeout: float


@dataclass
class Pause:
    seconds: float


Effect = Union[Open, Read, Pause]
Flow = Generator[Effect, Any, T]
Stream = Generator[Union[Effect, Event], Any, None]


def now() -> float:
    """A clock that never jumps back and, where there is such a clock, goes on while the machine sleeps."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def new_id(prefix: str = "") -> str:
    return prefix + uuid.uuid4().hex


def check_id(what: str, text: str) -> str:
    if not isinstance(text, str) or not ID.fullmatch(text) or ".." in text:
        raise ValueError(f"{what} = {text!r}: must be 1 to 128 letters, digits, '-', '_', '.', begin with a letter or digit, no '..'")
    return text


def encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def find_token(token: Optional[str], token_file: Optional[str]) -> Optional[str]:
    if token is not None and token_file is not None:
        raise ValueError("give a token or a token file, not both")
    if token is None and token_file is None:
        token, token_file = os.environ.get("TENURE_HTTP_TOKEN"), os.environ.get("TENURE_HTTP_TOKEN_FILE")
    if not token and token_file:
        with open(token_file, encoding="ascii", errors="replace") as file:
            token = file.read(4096).strip()
    if not token:
        return None
    token = token.strip()
    if not re.fullmatch(r"[\x21-\x7e]{16,1024}", token):
        raise ValueError("the token must have 16 to 1024 visible characters")
    return token


class Core:
    """The nodes, and which of them is asked."""

    def __init__(self, urls: Sequence[str], token: Optional[str], token_file: Optional[str], timeout: float) -> None:
        given = list(urls) or [one for one in os.environ.get("TENURE_URL", "").split(",") if one.strip()]
        self.addresses = [Address(url) for url in given or [DEFAULT_URL]]
        self.token = find_token(token, token_file)
        if not 0 < timeout <= 3600:
            raise ValueError("timeout: must be more than 0 and at most 3600 seconds")
        self.timeout = timeout
        #: The node that answered last.
        self.node = 0

    def __repr__(self) -> str:
        return ", ".join(address.url for address in self.addresses)

    def open(
        self,
        node: int,
        method: str,
        path: str,
        body: object = None,
        timeout: Optional[float] = None,
        fields: Mapping[str, str] = {},
    ) -> Flow[Union[Incoming, NoAnswer]]:
        """Sends a request to one node, and reads until the head of the answer is there."""
        timeout = self.try_timeout if timeout is None else timeout
        end, incoming = now() + timeout, Incoming()
        data = None if body is None else encode(body)
        all_fields = {"User-Agent": f"tenure-python/{VERSION}", **fields}
        request = request_bytes(self.addresses[node], method, path, data, self.token, all_fields)
        failed: Optional[NoAnswer] = yield Open(self.addresses[node], request, timeout)
        while failed is None and not incoming.has_head:
            failed = yield from read_more(incoming, end - now())
        return failed or incoming

    def ask(self, node: int, method: str, path: str, body: object = None, timeout: Optional[float] = None) -> Flow[Union[Reply, NoAnswer]]:
        """One request to one node, without another try."""
        timeout = self.try_timeout if timeout is None else timeout
        end = now() + timeout
        incoming = yield from self.open(node, method, path, body, timeout)
        if isinstance(incoming, NoAnswer):
            return incoming
        while not incoming.done:
            failed = yield from read_more(incoming, end - now())
            if failed is not None:
                return failed
        return Reply(incoming.status, incoming.fields, incoming.body())

    @property
    def try_timeout(self) -> float:
        """How long to wait for one answer: a node that hangs leaves time to ask others."""
        return max(self.timeout / 3, min(self.timeout, 2.0))

    def next_node(self, tried: int) -> None:
        """Ask another, unless somebody has already decided so."""
        if self.node == tried:
            self.node = (tried + 1) % len(self.addresses)

    def call(self, method: str, path: str, body: object = None, *, repeat: bool = True, fine: Sequence[int] = ()) -> Flow[Reply]:
        """Asks until a node has answered, for `timeout` in all.

        `repeat`: asking twice does the same as asking once. Otherwise it is asked again only if no node can have acted on it.
        `fine`: statuses besides 2xx that are an answer if an earlier try may have been carried out.
        """
        end, pause, failures, maybe_done = now() + self.timeout, PAUSE_MIN, 0, False
        while True:
            node = self.node
            left = max(end - now(), 0.05)
            reply = yield from self.ask(node, method, path, body, min(self.try_timeout, left))
            wait: Optional[float] = None
            if isinstance(reply, NoAnswer):
                error: TenureError = Unavailable(f"{self.addresses[node].url}: {reply.why}")
                maybe_done = maybe_done or reply.sent
                if reply.sent and not repeat:
                    raise Unavailable(f"{error.detail}; it may have been carried out")
                self.next_node(node)
            else:
                if 200 <= reply.status < 300 or (maybe_done and reply.status in fine):
                    return reply
                error = problem(reply)
                if reply.status == 429:
                    wait = retry_after(reply)
                elif reply.status in (502, 503, 504):
                    if not repeat and error.name not in ("stopping", "not-leader", "unavailable"):
                        raise error
                    maybe_done = True
                    self.next_node(node)
                    error = Unavailable(f"{self.addresses[node].url}: {error}", reply.status)
                elif not (reply.status == 408 or (reply.status == 409 and error.name in ("raced", "no-leader"))):
                    raise error
            failures += 1
            if wait is None:
                # Every node once without a pause; then all of them again after one.
                another = self.node != node and failures % len(self.addresses) != 0
                wait = 0.0 if another else pause * random.uniform(0.5, 1.0)
                pause = pause if another else min(pause * 2, PAUSE_MAX)
            if now() + wait >= end:
                raise error
            if wait > 0:
                yield Pause(wait)


def read_more(incoming: Incoming, timeout: float) -> Flow[Optional[NoAnswer]]:
    data = yield Read(timeout)
    if isinstance(data, NoAnswer):
        return data
    try:
        incoming.feed(data)
    except BadAnswer as error:
        return NoAnswer(str(error), sent=True)
    return None


def retry_after(reply: Reply) -> float:
    text = reply.fields.get("retry-after", "")
    seconds = float(text) if re.fullmatch(r"[0-9]{1,6}", text) else 1.0
    return min(max(seconds, 0.1), RETRY_AFTER_MAX)


def problem(reply: Reply) -> TenureError:
    """What a node says is wrong."""
    try:
        data = reply.json()
    except ValueError:
        data = None
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        return TenureError(reply.status, "unavailable" if reply.status >= 500 else "refused", f"HTTP status {reply.status}")
    name = data["type"].rsplit(":", 1)[-1]
    problems = [str(one) for one in data.get("problems") or []]
    return TenureError(reply.status, name, str(data.get("detail", "")), problems)


def decoded(reply: Reply) -> Any:
    try:
        return reply.json()
    except ValueError:
        raise TenureError(reply.status, "bad-answer", "the answer is not JSON") from None


def made(make: Callable[[Mapping[str, Any]], T], reply: Reply) -> T:
    """The answer as one of the generated types."""
    try:
        return make(decoded(reply))
    except (KeyError, TypeError, AttributeError):
        raise TenureError(reply.status, "bad-answer", "the answer lacks something") from None


def path_of(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def milliseconds(name: str, seconds: Optional[float]) -> Optional[int]:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= 1e10:
        raise ValueError(f"{name} = {seconds!r}: must be a number of seconds")
    return round(seconds * 1000)


def cut(text: str, most: int) -> str:
    """The beginning of a text, in at most this many bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    return data.decode() if len(data) <= most else data[: most - 3].decode("utf-8", "ignore") + "…"


def pieces(text: str, most: int) -> List[str]:
    """A text in pieces of at most this many bytes of UTF-8."""
    data, found = text.encode("utf-8", "replace"), []
    while data:
        piece = data[:most].decode("utf-8", "ignore")
        found.append(piece)
        data = data[len(piece.encode()) :]
    return found
