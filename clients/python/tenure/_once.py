"""`once` without any I/O: a job whose id is made from the key. The process that gets it runs the function."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, Optional

from ._api import NewJob, fields, job, loads, look, submit
from ._core import Core, Flow, encode
from ._errors import TenureError
from ._types import JobInfo
from ._worker_core import RESULT_MAX, Job


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of this name."""
    try:
        found = inspect.signature(function).parameters.get(name)
    except (TypeError, ValueError):
        return False
    return found is not None and found.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def arguments(function: Callable[..., Any], job: Job) -> Dict[str, Any]:
    return {"job": job} if takes(function, "job") else {}


def ends(core: Core, name: str) -> Flow[List[Any]]:
    """Its ends in the history, which keeps them when the ledger has long forgotten the job, and would create it again.

    It has a queue of its own, so that this costs a few reads however many other jobs there are.
    """
    page = fields((yield from core.call("GET", f"/v1/history?queue={name}&limit=1000")), "jobs")
    return [one for one in page["jobs"] if one.get("id") == name]


def begin(core: Core, name: str, retry: int, timeout: float) -> Flow[Optional[JobInfo]]:
    """Submits the job; returns the one there was before, if it can be seen."""
    if not 0 <= retry <= 99:
        raise ValueError(f"retry = {retry!r}: must be 0 to 99")
    if (yield from ends(core, name)):
        return (yield from job(core, name))
    new = NewJob(name, id=name, queue=name, attempts=1 + retry, timeout=timeout)
    made = yield from submit(core, [new])
    return (yield from look(core, name)) if made[0].existed else None


def check_new(core: Core, name: str) -> Flow[None]:
    """Right before the function runs: whether a job of this name ended while `begin` was held up.

    The same job, tried again because somebody asked for that, is no other one.
    """
    found = yield from ends(core, name)
    if found:
        now = yield from job(core, name)
        if any(one.get("submitted") != now.submitted for one in found):
            raise TenureError(None, "used", f"{name} has run before: it is not run again")


def result_of(value: object) -> str:
    """Always JSON, so that all callers get the same."""
    text = encode(value)
    if len(text) > RESULT_MAX:
        raise ValueError(f"the result has {len(text)} bytes as JSON: it may have at most {RESULT_MAX}")
    return text.decode()


def value_of(key: str, found: JobInfo) -> Any:
    """What `once` returns, or why it cannot."""
    if found.state == "succeeded":
        return loads(found.result)
    where = f" on worker {found.worker}" if found.worker else ""
    why = found.result or found.reason
    raise TenureError(None, found.state, f"{key!r} was run{where} and ended as {found.state}" + (f": {why}" if why else ""))
