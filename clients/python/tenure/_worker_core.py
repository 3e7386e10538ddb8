"""A worker without any I/O: where it is registered, which jobs it has, and what it says about them.

A worker is registered through one node at a time. Two things go on beside each other: `next` waits for jobs, and `beat` registers,
says about once a second that each job is still being done, and so learns which were cancelled.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import socket
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Sequence, Tuple

from . import _types as types
from ._core import (
    PAUSE_MAX,
    PAUSE_MIN,
    Core,
    Flow,
    Pause,
    check_id,
    cut,
    made,
    milliseconds,
    new_id,
    now,
    path_of,
    pieces,
    problem,
    retry_after,
)
from ._errors import TenureError, Unavailable
from ._http import NoAnswer, Reply
from ._types import JobGiven, Membership

log = logging.getLogger("tenure")

#: Limits of the nodes, in bytes. A body may have 64 KiB, and JSON makes up to six bytes of one.
RESULT_MAX, TEXT_MAX, OUTPUT_MAX = 1024, 200, 10 * 1024

#: The most that a job's unsent output may have; a node keeps 256 KiB of it in all.
UNSENT_MAX = 256 * 1024

#: Statuses that another try, perhaps at another node, may mend.
MENDED = (404, 408, 409, 410, 429, 500, 502, 503, 504)

#: Problems that say: this registration has ended.
GONE = ("unknown-worker", "worker-held", "worker-ended")

#: How long a node may be silent before the worker goes to another; a node that refuses the connection is left at once.
PATIENCE = 5.0

#: How often a job's progress is sent, and asked whether it was cancelled.
BEAT = 1.0

#: How long a request for the next job waits. A worker that stops waits for its last one.
WAIT = 5.0


class Job:
    """A job that a worker has."""

    def __init__(self, given: JobGiven, life: int) -> None:
        #: Its id: the same for every attempt.
        self.id = given.id
        self.kind = given.kind
        self.queue = given.queue
        #: What it is about: as JSON if it is, as a string if it is other text, else None.
        self.payload: Any = given.payload
        #: Which attempt this is, from 1.
        self.attempt = given.attempt
        #: The epoch of the leader that gave it out. Stamp it on what the job writes.
        self.epoch = given.epoch
        self._bytes = given.payload_base64
        self._life = life
        self._lock = threading.Lock()
        self._far: Optional[Tuple[int, str]] = None
        self._unsent: Deque[str] = deque()
        self._unsent_size = 0
        self._cancelled = threading.Event()
        self._taken = False
        self._on_cancel: Optional[Callable[[], None]] = None
        self._on_finish: Optional[Callable[[], None]] = None

    @property
    def payload_bytes(self) -> bytes:
        """The payload as it was submitted."""
        return base64.b64decode(self._bytes)

    @property
    def cancelled(self) -> bool:
        """The job was cancelled, took too long, or is given to another worker: stop, the result will not count."""
        return self._cancelled.is_set()

    def progress(self, percent: float, text: str = "") -> None:
        """Says how far the job is, 0 to 100. It is sent within a second; this does not wait."""
        with self._lock:
            self._far = (min(max(round(percent), 0), 100), cut(" ".join(text.split()), TEXT_MAX))

    def log(self, text: str) -> None:
        """Adds a line to the output of the job, for `tenure job logs`. It is sent within a second; this does not wait."""
        line = text if text.endswith("\n") else text + "\n"
        with self._lock:
            self._unsent.append(line)
            self._unsent_size += len(line)
            while self._unsent_size > UNSENT_MAX and len(self._unsent) > 1:
                self._unsent_size -= len(self._unsent.popleft())

    def _cancel(self) -> None:
        if not self._cancelled.is_set():
            self._cancelled.set()
            if self._on_cancel is not None:
                self._on_cancel()

    def _take(self) -> Tuple[Optional[Tuple[int, str]], List[str]]:
        """What is to be sent."""
        with self._lock:
            far, text = self._far, "".join(self._unsent)
            self._far, self._unsent_size = None, 0
            self._unsent.clear()
        return far, pieces(text[-UNSENT_MAX:], OUTPUT_MAX)

    def _put_back(self, far: Optional[Tuple[int, str]], text: str) -> None:
        """What could not be sent."""
        with self._lock:
            self._far = far if self._far is None else self._far
            if text:
                self._unsent.appendleft(text)
                self._unsent_size += len(text)


def default_worker_id() -> str:
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:60].strip("-") or "host"
    return f"{host}-{os.getpid()}-{new_id()[:8]}"


class WorkerCore:
    """What a worker knows. Its flows may run on several threads; they share what is behind the lock."""

    def __init__(
        self,
        core: Core,
        id: Optional[str],
        queues: Sequence[str],
        concurrency: int,
        timeout: Optional[float],
        wait: float = WAIT,
    ) -> None:
        self.core = core
        self.id = default_worker_id() if id is None else check_id("id", id)
        if not 1 <= concurrency <= 16:
            raise ValueError(f"concurrency = {concurrency!r}: must be 1 to 16")
        self.body: types.WorkerBody = {
            "workerId": self.id,
            "registration": new_id("r"),
            "kinds": [],
            "queues": [check_id("queue", queue) for queue in queues],
            "concurrency": concurrency,
        }
        if timeout is not None:
            self.body["timeout"] = milliseconds("timeout", timeout) or 0
        self.wait = wait
        self.jobs: Dict[Tuple[str, int], Job] = {}
        self.lock = threading.Lock()
        #: The node it is registered through.
        self.node: Optional[int] = None
        #: Counts registrations: a job belongs to one of them.
        self.life = 0
        self.silence = 20.0
        self.heard = now()
        #: Since when it has not answered.
        self._failing: Optional[float] = None
        #: The node it was registered through last.
        self._last: Optional[int] = None
        self._warned = 0.0
        self._again, self._pause = 0.0, PAUSE_MIN

    @property
    def registration(self) -> str:
        return self.body["registration"]

    def lose(self, life: int, why: str, gone: bool) -> None:
        """The node does not answer for it any more. `gone`: the registration has ended for sure, and its jobs with it."""
        jobs: List[Job] = []
        with self.lock:
            if self.node is None or self.life != life:
                return
            url = self.core.addresses[self.node].url
            self.node, self._again = None, 0.0
            if gone:
                self.life += 1
                jobs = list(self.jobs.values())
        log.warning("worker %s is no longer registered through %s: %s", self.id, url, why)
        for job in jobs:
            job._cancel()

    def register(self) -> Flow[bool]:
        """One round of all nodes. Raises what no other try can mend."""
        found: Optional[TenureError] = None
        first = self.core.node if self._last is None else self._last
        for turn in range(len(self.core.addresses)):
            # The last one first: it may only have been slow, and then everything is as it was.
            node = (first + turn) % len(self.core.addresses)
            asked = now()
            # The node waits for the store for up to 3 s.
            reply = yield from self.core.ask(node, "POST", "/v1/workers", self.body, timeout=3.0 + PATIENCE)
            if isinstance(reply, NoAnswer):
                found = Unavailable(f"{self.core.addresses[node].url}: {reply.why}")
            elif 200 <= reply.status < 300:
                self._registered(node, asked, made(Membership.of, reply), existed=reply.status == 200)
                return True
            else:
                found = problem(reply)
                if reply.status not in MENDED:
                    raise found
        if found is not None and now() - self._warned > 10.0:
            self._warned = now()
            log.warning("worker %s cannot register: %s", self.id, found)
        return False

    def _registered(self, node: int, asked: float, answer: Membership, existed: bool) -> None:
        with self.lock:
            same = existed and self._last == node
            lost = [] if same else list(self.jobs.values())
            self.life += 0 if same else 1
            self.node, self._last = node, node
            self.silence = max(answer.heartbeat_within_ms / 1000, 1.0)
            self.heard, self._failing = asked, None
        for job in lost:
            job._cancel()
        log.info("worker %s is registered through %s", self.id, self.core.addresses[node].url)

    def first(self) -> Flow[None]:
        """Registers, or raises why that is impossible."""
        end, pause = now() + self.core.timeout, PAUSE_MIN
        while not (yield from self.register()):
            if now() + pause >= end:
                raise Unavailable(f"worker {self.id} could not be registered within {self.core.timeout} s")
            yield Pause(pause)
            pause = min(pause * 2, PAUSE_MAX)

    def about(self, method: str, path: str, body: object, extra: float = 0.0) -> Flow[Optional[Reply]]:
        """A request about this worker, to its node. None: there is no answer, or no registration any more."""
        with self.lock:
            node, life = self.node, self.life
        if node is None:
            return None
        asked = now()
        reply = yield from self.core.ask(node, method, path, body, timeout=PATIENCE + extra)
        if isinstance(reply, Reply) and reply.status not in (502, 503, 504):
            self.heard, self._failing = max(self.heard, asked), None
            if reply.status in (404, 409, 410) and problem(reply).name in GONE:
                self.lose(life, problem(reply).detail, gone=True)
                return None
            return reply
        why = reply.why if isinstance(reply, NoAnswer) else str(problem(reply))
        self._failing = asked if self._failing is None else self._failing
        if now() - self._failing > PATIENCE or (isinstance(reply, NoAnswer) and reply.refused):
            self.lose(life, why, gone=False)
        return None

    def next(self) -> Flow[Optional[Job]]:
        """The next job, waited for and acknowledged. None: there is none, or no registration."""
        with self.lock:
            life = self.life
        wait = min(self.wait, self.silence / 3)
        body: types.NextBody = {"registration": self.registration, "waitMs": round(wait * 1000)}
        reply = yield from self.about("POST", path_of("workers", self.id, "jobs", "next"), body, extra=wait)
        if reply is None or reply.status == 204:
            if reply is None:
                yield Pause(PAUSE_MIN)
            return None
        if reply.status != 200:
            if reply.status not in MENDED:
                raise problem(reply)
            log.warning("worker %s: %s", self.id, problem(reply))
            yield Pause(retry_after(reply))
            return None
        job = Job(made(JobGiven.of, reply), life)
        end = now() + 8.0  # it is given out again after ten
        while now() < end:
            answer = yield from self.about("POST", path_of("jobs", job.id, "ack"), self._mine(job))
            if answer is not None:
                if answer.status != 204:
                    return None  # it is over, or somebody else's
                with self.lock:
                    if (job.id, job.attempt) in self.jobs or self.life != life:
                        return None  # the acknowledgement was lost the first time: it is being done
                    self.jobs[job.id, job.attempt] = job
                return job
            if self.life != life or self.node is None:
                return None
            yield Pause(PAUSE_MIN)
        return None

    def _mine(self, job: Job) -> types.AckBody:
        return {"workerId": self.id, "registration": self.registration, "attempt": job.attempt}

    def beat(self) -> Flow[None]:
        """Registers if need be; says what is new about each job, and that the worker lives."""
        if self.node is None:
            if now() >= self._again:
                registered = yield from self.register()
                self._pause = PAUSE_MIN if registered else min(self._pause * 2, 5.0)
                self._again = now() + self._pause
            return
        with self.lock:
            jobs = list(self.jobs.values())
        for job in jobs:
            if not job.cancelled:
                yield from self.say(job)
        if now() - self.heard > self.silence / 3:
            yield from self.about("POST", path_of("workers", self.id, "heartbeat"), {"registration": self.registration})

    def say(self, job: Job) -> Flow[None]:
        """What is new about a job; if nothing is, it is acknowledged once more, to learn whether it was cancelled."""
        far, texts = job._take()
        mine = self._mine(job)
        requests: List[Tuple[str, Mapping[str, Any]]] = []
        if far is not None:
            more: types.ProgressBody = {"percent": far[0], "text": far[1]}
            requests.append(("progress", {**mine, **more}))
        requests += [("progress", {**mine, "output": text}) for text in texts]
        requests = requests or [("ack", mine)]
        while requests:
            reply = yield from self.about("POST", path_of("jobs", job.id, requests[0][0]), requests[0][1])
            if reply is None or reply.status in MENDED and reply.status != 404:
                job._put_back(far, "".join(str(body.get("output", "")) for _, body in requests))
                return
            if reply.status == 404:
                job._cancel()
                return
            far = None
            requests.pop(0)

    def finish(self, job: Job, outcome: str, result: str) -> Flow[None]:
        """Says what came of a job, until the node has heard it, or it is too late."""
        far, texts = job._take()
        mine = self._mine(job)
        body: types.ResultBody = {"outcome": outcome, "result": cut(result, RESULT_MAX), "output": texts[-1] if texts else ""}
        requests: List[Tuple[str, Mapping[str, Any]]] = [("progress", {**mine, "output": text}) for text in texts[:-1]]
        requests.append(("result", {**mine, **body}))
        with self.lock:
            self.jobs.pop((job.id, job.attempt), None)
        pause, end = PAUSE_MIN, now() + self.core.timeout
        # If the node is gone, either it comes back or another registration ends this one's jobs.
        while requests and job._life == self.life and now() < end:
            reply = yield from self.about("POST", path_of("jobs", job.id, requests[0][0]), requests[0][1])
            if reply is not None and reply.status < 300:
                requests.pop(0)
                job._taken = not requests
                pause, end = PAUSE_MIN, now() + self.core.timeout
                continue
            if reply is not None and reply.status == 404:
                break
            if reply is not None and reply.status not in MENDED:
                log.error("worker %s: job %s: %s", self.id, job.id, problem(reply))
                break
            yield Pause(pause)
            pause = min(pause * 2, PAUSE_MAX)
        if not job._taken:
            log.warning("the result of job %s (attempt %d) came too late: dropped", job.id, job.attempt)

    def leave(self) -> Flow[None]:
        with self.lock:
            node, self.node = self.node, None
        if node is None:
            return
        path = path_of("workers", self.id) + f"?registration={self.registration}"
        for _ in range(3):
            reply = yield from self.core.ask(node, "DELETE", path, timeout=8.0)
            if isinstance(reply, Reply) and reply.status < 500 and reply.status != 429:
                return
            if isinstance(reply, NoAnswer) and reply.refused:
                return
            yield Pause(PAUSE_MIN)


def result_text(value: object) -> str:
    """What a handler returned, as the result of the job."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text.encode("utf-8", "replace")) > RESULT_MAX:
        log.warning("a result is longer than %d bytes: cut", RESULT_MAX)
    return text


def error_text(error: BaseException) -> str:
    return str(error) or type(error).__name__
