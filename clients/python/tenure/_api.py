"""The requests of the clients, as flows."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, TypedDict, TypeVar, Union, cast

from . import _types as types
from ._core import (
    PAUSE_MAX,
    SILENCE_MAX,
    Core,
    Flow,
    Pause,
    Stream,
    check_id,
    decoded,
    encode,
    made,
    milliseconds,
    new_id,
    now,
    path_of,
    problem,
    read_more,
)
from ._errors import TenureError
from ._http import BadAnswer, Event, EventReader, Incoming, NoAnswer, Reply
from ._types import JobInfo, Leader, SubmittedJob

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The most jobs, and the most bytes of them, that a node takes at a time.
JOBS_MAX, BODY_MAX = 1000, 60 * 1024

#: How often a job is looked at, at first and later.
LOOK_MIN, LOOK_MAX = 0.25, 2.0

Answer = TypeVar("Answer", Incoming, Reply)

#: A time: seconds since 1970, or a datetime.
Time = Union[float, datetime]

#: A duration: seconds, or a text such as "1h".
Duration = Union[float, str]


class JobOptions(TypedDict, total=False):
    """What a job may have besides a kind and a payload. Durations are in seconds."""

    #: Your id for it: submitting it again gives the same job. Default: a new one.
    id: Optional[str]
    #: The queue it waits in. Default: `default`.
    queue: str
    #: 0 to 9: higher ones are run first. Default: 5.
    priority: int
    #: It is not run before this time, at most a year from now.
    not_before: Time
    #: How long one attempt may take. Default: 60.
    timeout: float
    #: How often it may be started. Default: 3.
    attempts: int
    #: The pause before the second attempt; it doubles before each further one. Default: 1.
    backoff: float
    #: How long it may wait for a worker. Default: any time.
    ttl: float
    #: The worker that must run it. Default: any.
    worker: str
    #: What a worker must have.
    partition: str
    domain: str
    capabilities: Sequence[str]


class NewJob:
    """A job for `submit_many`."""

    def __init__(self, kind: str, payload: Any = None, **options: Unpack[JobOptions]) -> None:
        id = options.get("id")
        self.named = id is not None
        #: Never without one, so that it is safe to submit it again if no answer came.
        self.id = new_id("j") if id is None else check_id("id", id)
        body = camel({**options, "id": self.id, "kind": kind, "payload": payload})
        if "notBefore" in body:
            body["notBefore"] = moment(body["notBefore"])
        for name in {"timeout", "backoff", "ttl"} & body.keys():
            body[name + "Ms"] = milliseconds(name, body.pop(name))
        self.body = cast(types.JobBody, body)


class ScheduleFields(TypedDict, total=False):
    """The fields of a schedule, as in a file for `tenure apply`. A duration is a number of seconds, or a text such as "1h"."""

    cron: str
    zone: str
    every: Duration
    offset: Duration
    jitter: Duration
    manual: bool
    kind: str
    payload: Any
    command: Sequence[str]
    directory: str
    env: Mapping[str, str]
    http: Mapping[str, Any]
    checks: Sequence[Mapping[str, Any]]
    enabled: bool
    queue: str
    priority: int
    overlap: str
    max_concurrent: int
    misfire: str
    misfire_threshold: Duration
    timeout: Duration
    attempts: int
    backoff: Duration
    ttl: Duration
    late_after: Duration
    webhook: str
    partition: str
    domain: str
    capabilities: Sequence[str]
    fail_after: int
    recover_after: int


def camel(given: Mapping[str, Any]) -> Dict[str, Any]:
    """Without those that are None, under the names that a node knows."""
    return {re.sub("_(.)", lambda found: found[1].upper(), name): value for name, value in given.items() if value is not None}


def moment(time: Time) -> int:
    return milliseconds("time", time.timestamp() if isinstance(time, datetime) else time) or 0


def leader(core: Core) -> Flow[Leader]:
    return made(Leader.of, (yield from core.call("GET", "/v1/leader")))


def leading(core: Core) -> Flow[Optional[int]]:
    """The epoch in which the first node leads at this moment; None if it does not, or does not say so."""
    asked = now()
    reply = yield from core.ask(0, "GET", "/v1/leader", timeout=min(2.0, core.timeout))
    if isinstance(reply, NoAnswer):
        return None
    if reply.status != 200:
        if reply.status in (408, 429, 502, 503, 504):
            return None
        raise problem(reply)
    found = made(Leader.of, reply)
    # From when it was asked: the answer may have been on its way for longer than the lease lasts.
    valid = asked + (found.lease_remaining_ms or 0) / 1000
    return found.epoch if found.is_leader and now() < valid else None


def fence(core: Core, epoch: int, dispatched_at: Optional[Time], deadline: Optional[Time]) -> Flow[bool]:
    body: types.FenceBody = {"epoch": epoch}
    if dispatched_at is not None:
        body["dispatchedAt"] = moment(dispatched_at)
    if deadline is not None:
        body["deadline"] = moment(deadline)
    return fields((yield from core.call("POST", "/v1/fence", body)), "accepted")["accepted"] is True


def submit(core: Core, jobs: Sequence[NewJob]) -> Flow[List[SubmittedJob]]:
    found: List[SubmittedJob] = []
    for group in groups([job.body for job in jobs]):
        answer = fields((yield from core.call("POST", "/v1/jobs", {"jobs": group})), "jobs")
        found += [SubmittedJob.of(one) for one in answer["jobs"]]
    # An id of our own is new: if it existed, an answer to the same request was lost.
    return [SubmittedJob(one.id, one.existed and job.named) for one, job in zip(found, jobs)]


def groups(bodies: Sequence[types.JobBody]) -> List[List[types.JobBody]]:
    """As many as fit into each request."""
    found: List[List[types.JobBody]] = []
    room = 0
    for body in bodies:
        size = len(encode(body)) + 1
        if not found or size > room or len(found[-1]) >= JOBS_MAX:
            found.append([])
            room = BODY_MAX
        found[-1].append(body)
        room -= size
    return found


def job(core: Core, id: str) -> Flow[JobInfo]:
    return made(JobInfo.of, (yield from core.call("GET", path_of("jobs", check_id("id", id)))))


def wait(core: Core, id: str, timeout: Optional[float]) -> Flow[JobInfo]:
    end, pause = None if timeout is None else now() + timeout, LOOK_MIN
    while True:
        try:
            found = yield from job(core, id)
        except TenureError as error:
            if error.status != 429:
                raise
        else:
            if not found.open:
                return found
        if end is not None and now() + pause > end:
            raise TimeoutError(f"job {id} is not over after {timeout} s")
        yield Pause(pause)
        pause = min(pause * 1.5, LOOK_MAX)


def look(core: Core, id: str) -> Flow[Optional[JobInfo]]:
    """One look at a job, without waiting for a node that has no time. None: there was no answer."""
    node = core.node
    reply = yield from core.ask(node, "GET", path_of("jobs", id))
    if isinstance(reply, NoAnswer) or reply.status in (502, 503, 504):
        core.next_node(node)
        return None
    if reply.status in (404, 408, 429):
        return None
    if reply.status != 200:
        raise problem(reply)
    return made(JobInfo.of, reply)


def cancel(core: Core, id: str) -> Flow[bool]:
    reply = yield from core.call("POST", path_of("jobs", check_id("id", id), "cancel"), {})
    return outcome(reply) == "asked"


def retry(core: Core, id: str, attempts: int) -> Flow[None]:
    body: types.RetryBody = {"attempts": attempts}
    # 422 to a repeated request: it is open again, as asked.
    yield from core.call("POST", path_of("jobs", check_id("id", id), "retry"), body, fine=(422,))


#: Fields of a schedule that are durations.
DURATIONS = {"every", "offset", "jitter", "misfireThreshold", "timeout", "backoff", "ttl", "lateAfter"}


def put_schedule(core: Core, id: str, given: ScheduleFields) -> Flow[str]:
    entry = camel(given)
    for name in DURATIONS & entry.keys():
        if not isinstance(entry[name], str):
            entry[name] = f"{milliseconds(name, entry[name])}ms"
    return outcome((yield from core.call("PUT", path_of("schedules", check_id("id", id)), entry)))


def schedules(core: Core) -> Flow[List[Dict[str, Any]]]:
    return list(fields((yield from core.call("GET", "/v1/schedules")), "schedules")["schedules"])


def change_schedule(core: Core, id: str, change: str) -> Flow[None]:
    yield from core.call("POST", path_of("schedules", check_id("id", id), change), {})


def run_now(core: Core, id: str, name: Optional[str]) -> Flow[str]:
    body: types.RunBody = {"name": new_id()[:12] if name is None else name}
    reply = yield from core.call("POST", path_of("schedules", check_id("id", id), "run-now"), body)
    return str(fields(reply, "job")["job"])


def remove(core: Core, id: str) -> Flow[None]:
    yield from core.call("DELETE", path_of("schedules", check_id("id", id)), fine=(404,))


def request(core: Core, method: str, path: str, body: object) -> Flow[Any]:
    if not path.startswith("/"):
        raise ValueError(f"path = {path!r}: must begin with /")
    reply: Reply = yield from core.call(method, path, body, repeat=method in ("GET", "PUT", "DELETE"))
    kind = reply.fields.get("content-type", "")
    return decoded(reply) if "json" in kind or not reply.body else reply.body.decode("utf-8", "replace")


def outcome(reply: Reply) -> str:
    return str(fields(reply, "outcome")["outcome"])


def fields(reply: Reply, name: str) -> Dict[str, Any]:
    """The fields of an answer, one of which must be there."""
    answer = decoded(reply)
    if not isinstance(answer, dict) or name not in answer:
        raise TenureError(reply.status, "bad-answer", f"the answer has no {name}")
    return answer


def events(core: Core, level: str) -> Stream:
    """The events of one node; of another if it goes away. Where each node has got to is remembered."""
    if level not in ("info", "debug"):
        raise ValueError(f"level = {level!r}: must be info or debug")
    last: Dict[int, str] = {}
    before: Optional[int] = None
    failures = 0
    while True:
        node = core.node
        try:
            if node not in last:
                last[node] = yield from newest(core, node, level)
                if before is not None:
                    yield Event("missed", {"missed": None, "why": "another node reports from here on"})
            after = {"Last-Event-ID": last[node]} if last[node] else {}
            path = f"/v1/events?level={level}" + ("" if after else "&recent=1000")  # there was none yet: none is missed
            head = check_stream((yield from core.open(node, "GET", path, fields=after)))
            before, reader, failed = node, EventReader(), None
            while True:
                for event in reader.feed(head.body()):
                    last[node], failures = event.id or last[node], 0
                    yield event
                if failed is not None or head.done:
                    break
                failed = yield from read_more(head, SILENCE_MAX)
        except (BadAnswer, NoNode):
            core.next_node(node)
            failures += 1
            if failures % len(core.addresses):
                continue  # the next one at once
        yield Pause(min(0.1 * 2 ** min(failures, 10), PAUSE_MAX))


class NoNode(Exception):
    """This node does not answer as it should: another may."""


def check_stream(head: Union[Answer, NoAnswer]) -> Answer:
    if isinstance(head, NoAnswer) or head.status in (408, 429, 502, 503, 504):
        raise NoNode
    if head.status != 200:
        raise problem(head if isinstance(head, Reply) else Reply(head.status, head.fields, head.body()))
    return head


def newest(core: Core, node: int, level: str) -> Flow[str]:
    """The id of a node's newest event; "" if there is none yet."""
    reply = check_stream((yield from core.ask(node, "GET", f"/v1/events?recent=1&follow=false&level={level}")))
    found = EventReader().feed(reply.body)
    return found[-1].id or "" if found else ""


def once_name(key: str) -> str:
    """The name of the job, its kind and its queue: readable as far as possible. The JavaScript client has the same."""
    if not key:
        raise ValueError("the key must not be empty")
    text = key.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    readable = "".join(c if re.match(r"[A-Za-z0-9_-]", c) else "-" * (1 + (ord(c) > 0xFFFF)) for c in text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"once.{readable[:60]}.{digest[:32]}"


def loads(text: Optional[str]) -> Any:
    """A result, as JSON if it is."""
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
