"""For APScheduler 3: every fire of every job runs in one of all processes that have the same jobs.

    scheduler = BackgroundScheduler(executors={"default": OnceExecutor(Client())})

A fire is known by the job's id and the time it was due. So give each job an id, and a trigger that has the same times everywhere: a cron
trigger without jitter, a date, or an interval with a `start_date`. A fire begins as soon as `Client.once` runs it.
"""

from __future__ import annotations

import logging
import traceback
from datetime import datetime, timedelta, timezone
from typing import Any, List

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MISSED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor

from ._client import Client


class OnceExecutor(ThreadPoolExecutor):
    """A thread pool whose jobs run once per fire. In the other processes a fire ends when it has ended where it ran."""

    def __init__(self, client: Client, max_workers: int = 10) -> None:
        super().__init__(max_workers)
        self._client = client

    def _do_submit_job(self, job: Any, run_times: List[datetime]) -> None:
        def done(future: Any) -> None:
            error = future.exception()
            if error is None:
                self._run_job_success(job.id, future.result())
            else:
                self._run_job_error(job.id, error, error.__traceback__)

        self._pool.submit(self._fires, job, run_times).add_done_callback(done)

    def _fires(self, job: Any, run_times: List[datetime]) -> List[Any]:
        return [self._fire(job, run_time) for run_time in run_times]

    def _fire(self, job: Any, run_time: datetime) -> Any:
        log = logging.getLogger("apscheduler.executors.tenure")
        late = datetime.now(timezone.utc) - run_time
        if job.misfire_grace_time is not None and late > timedelta(seconds=job.misfire_grace_time):
            log.warning("job %s missed its time by %s", job.id, late)
            return JobExecutionEvent(EVENT_JOB_MISSED, job.id, job._jobstore_alias, run_time)
        returned: List[Any] = []

        def function() -> None:
            log.info("job %s runs here, for %s", job.id, run_time)
            returned.append(job.func(*job.args, **job.kwargs))

        due = run_time.astimezone(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
        try:
            self._client.once(f"apscheduler.{job.id}.{due}", function)
        except Exception as error:
            log.exception("job %s failed", job.id)
            told = {"exception": error, "traceback": traceback.format_exc()}
            return JobExecutionEvent(EVENT_JOB_ERROR, job.id, job._jobstore_alias, run_time, **told)
        value = returned[0] if returned else None
        return JobExecutionEvent(EVENT_JOB_EXECUTED, job.id, job._jobstore_alias, run_time, retval=value)
