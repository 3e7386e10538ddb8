"""Made by generate.py from the OpenAPI document of a node: do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, TypedDict


@dataclass(frozen=True)
class CheckOutcome:
    """The result of a check."""

    #: The check's name.
    name: str
    #: Whether it is well.
    ok: bool
    #: How long it took.
    latency_ms: int
    #: What it found, for people.
    detail: str

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> CheckOutcome:
        return cls(
            name=data["name"],
            ok=data["ok"],
            latency_ms=data["latencyMs"],
            detail=data["detail"],
        )


@dataclass(frozen=True)
class JobGiven:
    """A job for a worker."""

    #: Which job. The same for every attempt.
    id: str
    #: Which attempt.
    attempt: int
    #: The epoch of the leader that dispatched it: to be stamped on, and checked by, whatever it writes.
    epoch: int
    #: The queue it waited in.
    queue: str
    #: What it is.
    kind: str
    #: What it is about: as JSON if it is, as a string if it is other text, else null.
    payload: Any
    #: The same as bytes.
    payload_base64: str
    #: Acknowledge it within this, or it is given out again.
    ack_within_ms: int

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> JobGiven:
        return cls(
            id=data["id"],
            attempt=data["attempt"],
            epoch=data["epoch"],
            queue=data["queue"],
            kind=data["kind"],
            payload=data["payload"],
            payload_base64=data["payloadBase64"],
            ack_within_ms=data["ackWithinMs"],
        )


@dataclass(frozen=True)
class JobInfo:
    """A job."""

    #: The job's id.
    id: str
    #: The schedule that made it, if one did.
    schedule: Optional[str]
    #: What kind of job it is.
    kind: str
    #: The queue it waits in.
    queue: str
    #: 0 to 9: higher ones are run first.
    priority: int
    #: `queued`, `dispatched`, `running`, `succeeded`, `failed` and so on.
    state: str
    #: It is not over.
    open: bool
    #: When it was due, in ms since 1970: for a job that was submitted, when that was, or its `notBefore`.
    due: Optional[int]
    #: How long ago that was.
    age_ms: Optional[int]
    #: When it was submitted, its last attempt began, and it ended, in ms since 1970.
    submitted: Optional[int]
    #: See `submitted`.
    began: Optional[int]
    #: See `submitted`.
    ended: Optional[int]
    #: How many attempts were begun.
    attempt: int
    #: Most attempts.
    attempts: int
    #: The worker that runs it, or ran it.
    worker: Optional[str]
    #: The only worker that may run it.
    target: Optional[str]
    #: The epoch of the leader that dispatched it.
    epoch: int
    #: Why it waits, or why it ended as it did.
    reason: str
    #: How far its worker is with it, 0 to 100, if it says so; only while it runs.
    percent: Optional[int]
    #: What its worker says about that.
    progress: Optional[str]
    #: The results of its checks.
    checks: List[CheckOutcome]
    #: A result that is not a report.
    result: Optional[str]
    #: Results that came too late to count.
    late: List[LateOutcome]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> JobInfo:
        return cls(
            id=data["id"],
            schedule=data.get("schedule"),
            kind=data["kind"],
            queue=data["queue"],
            priority=data["priority"],
            state=data["state"],
            open=data["open"],
            due=data.get("due"),
            age_ms=data.get("ageMs"),
            submitted=data.get("submitted"),
            began=data.get("began"),
            ended=data.get("ended"),
            attempt=data["attempt"],
            attempts=data["attempts"],
            worker=data.get("worker"),
            target=data.get("target"),
            epoch=data["epoch"],
            reason=data["reason"],
            percent=data.get("percent"),
            progress=data.get("progress"),
            checks=[CheckOutcome.of(one) for one in data["checks"]],
            result=data.get("result"),
            late=[LateOutcome.of(one) for one in data["late"]],
        )


@dataclass(frozen=True)
class LateOutcome:
    """A result that came too late."""

    #: The number of the attempt.
    attempt: int
    #: The worker that ran it.
    worker: str
    #: How it ended.
    outcome: str

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> LateOutcome:
        return cls(
            attempt=data["attempt"],
            worker=data["worker"],
            outcome=data["outcome"],
        )


@dataclass(frozen=True)
class Leader:
    """A short answer about leadership, from memory alone."""

    #: The namespace.
    namespace: str
    #: The leader, which may be dead and not noticed yet; none if nobody is known to lead.
    leader: Optional[str]
    #: The highest epoch this node knows; 0 if there never was one.
    epoch: int
    #: The node that answers.
    node: str
    #: Its role.
    role: Optional[str]
    #: The node that answers leads, and may act now.
    is_leader: bool
    #: How long it may act if it does not renew.
    lease_remaining_ms: Optional[int]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Leader:
        return cls(
            namespace=data["namespace"],
            leader=data.get("leader"),
            epoch=data["epoch"],
            node=data["node"],
            role=data.get("role"),
            is_leader=data["isLeader"],
            lease_remaining_ms=data.get("leaseRemainingMs"),
        )


@dataclass(frozen=True)
class Membership:
    """Where a worker stands."""

    #: The worker.
    worker_id: str
    #: What names this registration: every later request about the worker carries it.
    registration: str
    #: `registering` (the store has not confirmed it yet) or `registered`.
    phase: str
    #: It may work now: it has its id, and its node leads.
    enabled: bool
    #: The leader's epoch, as this node knows it.
    epoch: int
    #: How long the node may act if it does not renew; none if it does not lead.
    lease_remaining_ms: Optional[int]
    #: Be heard of again within this, or the worker is let go. A third of it is a good interval.
    heartbeat_within_ms: int

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Membership:
        return cls(
            worker_id=data["workerId"],
            registration=data["registration"],
            phase=data["phase"],
            enabled=data["enabled"],
            epoch=data["epoch"],
            lease_remaining_ms=data.get("leaseRemainingMs"),
            heartbeat_within_ms=data["heartbeatWithinMs"],
        )


@dataclass(frozen=True)
class SubmittedJob:
    """A job that was submitted."""

    id: str
    #: There was a job with this id; it stays as it is.
    existed: bool

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> SubmittedJob:
        return cls(
            id=data["id"],
            existed=data["existed"],
        )


class AckBody(TypedDict, total=False):
    workerId: str
    registration: str
    attempt: int


class FenceBody(TypedDict, total=False):
    epoch: int
    dispatchedAt: int
    deadline: int
    id: str


class HoldingBody(TypedDict, total=False):
    holding: str


class LockBody(TypedDict, total=False):
    holding: str
    waitMs: int
    timeout: int


class JobBody(TypedDict, total=False):
    id: str
    kind: str
    queue: str
    priority: int
    notBefore: int
    payload: Any
    worker: str
    partition: str
    domain: str
    capabilities: List[str]
    timeoutMs: int
    ttlMs: int
    attempts: int
    backoffMs: int


class WorkerBody(TypedDict, total=False):
    workerId: str
    pluginType: str
    pod: str
    timeout: int
    payload: Dict[str, Any]
    registration: str
    kinds: List[str]
    queues: List[str]
    concurrency: int


class NextBody(TypedDict, total=False):
    registration: str
    waitMs: int


class ProgressBody(TypedDict, total=False):
    workerId: str
    registration: str
    attempt: int
    percent: int
    text: str
    output: str


class ResultBody(TypedDict, total=False):
    workerId: str
    registration: str
    attempt: int
    outcome: str
    result: str
    output: str


class RetryBody(TypedDict, total=False):
    attempts: int


class RunBody(TypedDict, total=False):
    name: str
