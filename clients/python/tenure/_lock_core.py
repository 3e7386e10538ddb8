"""A lock without any I/O: until when it is held, and how it is taken, renewed and released.

It belongs to the node it was taken through, and that node holds it for as long as it hears from here. Its holder may act until
`validMs` after the last answered request was *sent*.
"""

from __future__ import annotations

from typing import Optional, Union

from . import _types as types
from ._api import fields
from ._core import PAUSE_MAX, PAUSE_MIN, Core, Flow, Pause, check_id, milliseconds, new_id, now, path_of, problem
from ._errors import LockLost, TenureError, Unavailable
from ._http import NoAnswer, Reply

#: The longest that a node waits for a lock in one request.
WAIT_MAX = 30.0


class LockCore:
    def __init__(self, core: Core, name: str, wait: Optional[float], timeout: Optional[float]) -> None:
        self.core = core
        self.name = check_id("name", name)
        self.wait = wait
        self.timeout_ms = milliseconds("timeout", timeout)
        milliseconds("wait", wait)
        self._clear()

    def _clear(self) -> None:
        self.holding = new_id("h")
        self.node = 0
        self.epoch = 0
        self.until = 0.0
        self.third = 0.0
        self.lost = False

    @property
    def rest(self) -> float:
        """How long until it is to be renewed: at a third of its time."""
        return max(self.until - 2 * self.third - now(), 0.02)

    @property
    def valid(self) -> bool:
        if not self.lost and now() >= self.until:
            self.lost = True  # for good: what it protects may have stopped
        return not self.lost

    def check(self) -> None:
        if not self.valid:
            raise LockLost(self.name)

    def _held(self, asked: float, reply: Reply) -> None:
        answer = fields(reply, "validMs")
        valid = float(answer["validMs"]) / 1000
        self.epoch = int(answer["epoch"])
        self.until, self.third = asked + valid, valid / 3

    def _beat(self, timeout: float) -> Flow[Union[Reply, NoAnswer]]:
        body: types.HoldingBody = {"holding": self.holding}
        return (yield from self.core.ask(self.node, "POST", path_of("locks", self.name, "heartbeat"), body, timeout))

    def take(self) -> Flow[None]:
        """Waits for the lock. Raises `locked` if another has it for all of `wait`."""
        self._clear()
        end = None if self.wait is None else now() + self.wait
        failing: Optional[float] = None
        pause = PAUSE_MIN
        while True:
            self.node = self.core.node
            asked = now()
            wait = WAIT_MAX if end is None else min(max(end - asked, 0.0), WAIT_MAX)
            body: types.LockBody = {"holding": self.holding, "waitMs": round(wait * 1000)}
            if self.timeout_ms is not None:
                body["timeout"] = self.timeout_ms
            timeout = wait + self.core.try_timeout
            reply = yield from self.core.ask(self.node, "POST", path_of("locks", self.name), body, timeout)
            if isinstance(reply, Reply) and reply.status == 200:
                self._held(asked, reply)
                if now() < self.until - self.third:
                    return
                # It was waited for, and counts from before that: little of it is left.
                asked = now()
                reply = yield from self._beat(self.core.try_timeout)
                if isinstance(reply, Reply) and reply.status == 200:
                    self._held(asked, reply)
                    if now() < self.until:
                        return
                continue
            if isinstance(reply, NoAnswer):
                error: TenureError = Unavailable(f"{self.core.addresses[self.node].url}: {reply.why}")
            else:
                error = problem(reply)
                if error.name == "locked":
                    if end is not None and now() >= end:
                        raise error
                    failing, pause = None, PAUSE_MIN
                    yield Pause(pause)
                    continue
                if reply.status not in (408, 409, 429, 502, 503, 504):
                    raise error
            failing = asked if failing is None else failing
            self.core.next_node(self.node)
            if now() + pause - failing > self.core.timeout:
                raise error
            yield Pause(pause)
            pause = min(pause * 2, PAUSE_MAX)

    def renew(self) -> Flow[bool]:
        """Renews it, or finds out that it is lost."""
        while self.valid:
            asked = now()
            reply = yield from self._beat(max(min(self.third, self.until - asked), 0.01))
            if isinstance(reply, Reply) and reply.status == 200:
                if self.valid:
                    self._held(asked, reply)
                break
            if isinstance(reply, Reply) and reply.status == 404:
                self.lost = True
                break
            yield Pause(min(PAUSE_MIN, self.third / 3))
        return self.valid

    def release(self, tries: int = 3) -> Flow[None]:
        path = path_of("locks", self.name) + f"?holding={self.holding}"
        self.until = 0.0
        for turn in range(tries):
            if turn:
                yield Pause(PAUSE_MIN)
            reply = yield from self.core.ask(self.node, "DELETE", path, timeout=min(self.core.try_timeout, 3.0))
            if isinstance(reply, Reply) and reply.status not in (408, 429, 502, 503, 504):
                return
            if isinstance(reply, NoAnswer) and reply.refused:
                return
