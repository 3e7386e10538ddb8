"""A client for Tenure: leader election, workers, jobs, schedules and locks over the HTTP of its nodes."""

from ._api import JobOptions, NewJob, ScheduleFields
from ._async_client import AsyncClient, AsyncLock
from ._async_worker import AsyncWorker
from ._client import Client, EventStream, Lock
from ._errors import LockLost, TenureError, Unavailable
from ._http import Event
from ._types import JobInfo, Leader, SubmittedJob
from ._worker import Worker
from ._worker_core import Job

__all__ = [
    "AsyncClient",
    "AsyncLock",
    "AsyncWorker",
    "Client",
    "Event",
    "EventStream",
    "Job",
    "JobInfo",
    "JobOptions",
    "Leader",
    "Lock",
    "LockLost",
    "NewJob",
    "ScheduleFields",
    "SubmittedJob",
    "TenureError",
    "Unavailable",
    "Worker",
]
